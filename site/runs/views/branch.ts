import { useMemo, useRef, useState } from 'preact/hooks';
import type { EpisodeRecord } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';
import { useEvent } from '../../components/store.ts';
import { useSource } from '../data/hooks.ts';
import type { Branch } from './branch-lane.ts';
import type { RunViewProps } from './run-view-props.ts';

/** The branch of an episode, and its actions. */
export function useBranch(store: RunViewProps['store'], episode: EpisodeRecord) {
  const source = useSource();
  const [branch, setBranch] = useState<Branch>();
  const [problem, setProblem] = useState<unknown>();
  const lane = useRef<typeof import('./branch-lane.ts')>(undefined);
  const nothing = useMemo(() => new EventTarget(), []);
  useEvent(branch?.session.store ?? nothing, 'change');
  const { api, server } = source.site;
  const config = store.detail!.row.run.tags.find(({ tag }) => tag === episode.tag)?.config;
  const open = async (turn: number, by: string) => {
    setProblem(undefined);
    try {
      // The player is loaded when it is first needed.
      lane.current ??= await import('./branch-lane.ts');
      branch?.session.stop();
      const opened = lane.current.openBranch(source, { episode, config, turn, by });
      setBranch(opened.branch);
      await opened.played;
    } catch (error) {
      setProblem(error);
    }
  };
  const close = () => {
    branch?.session.stop();
    setBranch(undefined);
  };
  const state = branch?.session.store.state;
  const error = (problem ?? state?.openProblem) as Error | undefined;
  return {
    available: api !== null && server !== null,
    branch,
    View: lane.current?.BranchLane,
    error: error?.message,
    busy: state !== undefined && (state.isOpening || state.isPolicyPlaying),
    open,
    close,
    server,
  };
}

export type BranchState = ReturnType<typeof useBranch>;

/** Buttons that branch off before a turn. */
export function BranchControls({ state, turn }: { readonly state: BranchState; readonly turn: number }) {
  const { available, busy, open, error, branch } = state;
  if (!available) return null;
  const references = branch?.session.store.state.environment?.references.map(({ name }) => name);
  return html`<div class="row" role="group" aria-label="Branch here">
    <span class="fine">Branch from before turn ${turn + 1}, play on by</span>
    <span class="row tight">${['hand', ...(references ?? ['optimal'])].map(
      way =>
        html`<button key=${way} type="button" class="small" disabled=${busy} aria-keyshortcuts=${way === 'hand' ? 'b' : undefined} onClick=${() => open(turn, way)}>${way}</button>`,
    )}</span>
    ${error && html`<span class="fine outcome field-error" role="alert">${error}</span>`}
  </div>`;
}

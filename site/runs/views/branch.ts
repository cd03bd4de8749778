import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Json } from '../../../shared/json.ts';
import type { PlayOnReply } from '../../../shared/run-folder/requests.ts';
import { html } from '../../components/html.ts';
import { isLocked } from '../../components/request.ts';
import { useEvent } from '../../components/store.ts';
import type { EpisodeReply } from '../../server/reader/trajectories.ts';
import { useSource } from '../data/hooks.ts';
import type { Branch } from './branch-lane.ts';
import { CHECKPOINT } from './checkpoint-player.ts';
import type { RunViewProps } from './parts.ts';
import { TokenForm } from './parts.ts';

/**
 * The branch of an episode, and its actions.
 * @param step of the checkpoint that plays on; the newest where it is absent
 */
export function useBranch(
  store: RunViewProps['store'],
  { episode, file, index }: EpisodeReply,
  step: number | undefined,
) {
  const source = useSource();
  const [branch, setBranch] = useState<Branch>();
  const [problem, setProblem] = useState<unknown>();
  const [isWaiting, setWaiting] = useState(false);
  const lane = useRef<typeof import('./branch-lane.ts')>(undefined);
  const nothing = useMemo(() => new EventTarget(), []);
  useEvent(branch?.session.store ?? nothing, 'change');
  const { api, server, checkpoints } = source.site;
  const config = store.detail!.row.run.tags.find(({ tag }) => tag === episode.tag)?.config;
  const hasCheckpoint = checkpoints === true;
  /** Aborted when the branch is left: a checkpoint that loads for it is given up. */
  const leaving = useRef(new AbortController());
  const close = () => {
    branch?.session.stop();
    leaving.current.abort();
    leaving.current = new AbortController();
    setBranch(undefined);
  };
  useEffect(() => () => leaving.current.abort(), []);
  const open = async (turn: number, by: string) => {
    setProblem(undefined);
    try {
      // The player is loaded when it is first needed.
      lane.current ??= await import('./branch-lane.ts');
      close();
      const { signal } = leaving.current;
      const playOn = (actions: readonly Json[]) => {
        setWaiting(true);
        return source
          .send<PlayOnReply>(
            'checkpoint',
            store.id,
            { action: 'play_on', file, index, turn, step, actions },
            signal,
          )
          .finally(() => setWaiting(false));
      };
      const start = { episode, config, turn, by, playOn: hasCheckpoint ? playOn : undefined };
      const opened = lane.current.openBranch(source, start);
      setBranch(opened.branch);
      await opened.ended;
    } catch (error) {
      setProblem(error);
    }
  };
  const state = branch?.session.store.state;
  const locked = isLocked(state?.problem) ? state?.problem : undefined;
  const error = (problem ?? state?.openProblem ?? locked) as Error | undefined;
  return {
    available: api !== null && server !== null && episode.format === undefined,
    branch,
    View: lane.current?.BranchLane,
    error,
    busy: isWaiting || (state !== undefined && (state.isOpening || state.isPolicyPlaying)),
    isWaiting,
    hasCheckpoint,
    step,
    retry: () => void branch?.session.playOn(),
    open,
    close,
    server,
  };
}

export type BranchState = ReturnType<typeof useBranch>;

/** Buttons that branch off before a turn. */
export function BranchControls({ state, turn }: { readonly state: BranchState; readonly turn: number }) {
  const { available, busy, open, error, branch, isWaiting, hasCheckpoint, step, retry } = state;
  if (!available) return null;
  const references = branch?.session.store.state.environment?.references.map(({ name }) => name);
  return html`<div class="row" role="group" aria-label="Branch here">
    <span class="fine">Branch from before turn ${turn + 1}, play on by</span>
    <span class="row tight">${[
      'hand',
      ...(references ?? ['optimal']),
      ...(hasCheckpoint ? [CHECKPOINT] : []),
    ].map(
      way =>
        html`<button key=${way} type="button" class="small" disabled=${busy} aria-keyshortcuts=${way === 'hand' ? 'b' : undefined} onClick=${() => open(turn, way)}>${way}${way === CHECKPOINT && step !== undefined && ` ${step}`}</button>`,
    )}</span>
    <span class="fine" role="status">${isWaiting ? 'The checkpoint loads and plays …' : ''}</span>
    ${error && html`<span class="fine outcome field-error" role="alert">${error.message}</span>`}
    ${isLocked(error) && html`<${TokenForm} onToken=${retry} />`}
  </div>`;
}

import { useState } from 'preact/hooks';
import type { TrajectoryRecord } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';
import { useSource } from '../data/hooks.ts';
import type { Source } from '../data/source.ts';
import type { RunViewProps } from './run-view-props.ts';

interface BatchReply {
  readonly results: readonly { readonly ok: boolean; readonly error?: { readonly detail?: string } }[];
}

/**
 * Opens a session of the episode's level on the environment server and brings it to the state before a turn.
 * @returns its id
 * @throws SourceError when the server refuses; Error when it refuses an action
 */
export async function branch(
  source: Source,
  episode: TrajectoryRecord,
  config: object,
  turn: number,
): Promise<string> {
  const { session_id } = await source.post<{ session_id: string }>('v1/sessions', {
    env_id: episode.env_id,
    config,
    seed: episode.seed,
    ...(episode.dynamics_seed === undefined ? {} : { dynamics_seed: episode.dynamics_seed }),
  });
  const actions = episode.turns.slice(0, turn).flatMap(({ actions }) => actions);
  if (actions.length === 0) return session_id;
  const items = actions.map(action => ({ op: 'step', session_id, action }));
  const { results } = await source.post<BatchReply>('v1/batch', { items });
  const failed = results.find(({ ok }) => !ok);
  if (failed) throw new Error(failed.error?.detail ?? 'the server refused an action of the episode');
  return session_id;
}

/** A button that branches off an episode, and then the link to play on. */
export function BranchHere({
  store,
  episode,
  turn,
}: {
  readonly store: RunViewProps['store'];
  readonly episode: TrajectoryRecord;
  readonly turn: number;
}) {
  const source = useSource();
  const [state, setState] = useState<{
    readonly link?: string;
    readonly error?: string;
    readonly asked?: boolean;
  }>({});
  if (source.site.api === null || source.site.server === null) return null;
  const config = store.detail!.row.run.tags.find(({ tag }) => tag === episode.tag)?.config ?? {};
  const start = async () => {
    setState({ asked: true });
    try {
      const id = await branch(source, episode, config, turn);
      setState({ link: `${source.site.server}#/watch/${encodeURIComponent(id)}` });
    } catch (error) {
      setState({ error: (error as Error).message });
    }
  };
  if (state.link) return html`<a class="button small primary" href=${state.link}>Play on from here</a>`;
  return html`<button type="button" class="small" onClick=${start} disabled=${state.asked} title="Opens a session on the environment server in this state">${state.asked ? 'Opening …' : 'Branch here'}</button>
    ${state.error && html`<span class="field-error" role="alert">${state.error}</span>`}`;
}

import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Json } from '../../../shared/json.ts';
import type { EpisodeRecord } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';
import { formatValue, namedAction } from '../../player/format.ts';
import { PlaySession } from '../../player/play-session.ts';
import { focusIn, Player, takeKey } from '../../player/player.ts';
import { isOver, totalReward } from '../../player/session-state.ts';
import { type BatchReply, batchServer } from '../../player/wire.ts';
import type { Source } from '../data/source.ts';
import { short } from '../format.ts';
import { CHECKPOINT, CheckpointPlayer, type PlayOn } from './checkpoint-player.ts';
import { Arrow, actionsBefore } from './turn-words.ts';

/** A game that branches off an episode. */
export interface Branch {
  /** Turn before which it branches off. */
  readonly turn: number;
  /** `hand`, `checkpoint`, or the reference policy that plays. */
  readonly by: string;
  /** Present where a checkpoint can play. */
  readonly checkpoint?: CheckpointPlayer;
  readonly session: PlaySession;
}

interface BranchStart extends Pick<Branch, 'turn' | 'by'> {
  readonly episode: EpisodeRecord;
  readonly config?: object;
  /** Absent where no checkpoint can play. */
  readonly playOn?: PlayOn;
}

/** Opens a session of an episode's level, and continues from before a turn. */
export function openBranch(source: Source, { episode, config, turn, by, playOn }: BranchStart) {
  const actions = actionsBefore(episode, turn);
  const server = batchServer(
    async items => (await source.post<{ results: readonly BatchReply[] }>('v1/batch', { items })).results,
    parameters => source.post('v1/sessions', parameters),
  );
  const session = new PlaySession(server);
  session.floor = actions.length;
  const checkpoint = playOn && new CheckpointPlayer(playOn, actions.length);
  if (checkpoint) session.players.set(CHECKPOINT, checkpoint.next);
  const play = async () => {
    await session.open({
      envId: episode.env_id,
      seed: episode.seed ?? undefined,
      dynamicsSeed: episode.dynamics_seed,
      reseeds: episode.reseeds,
      config: config as { readonly [name: string]: Json } | undefined,
      actions,
    });
    if (by === 'hand') return;
    session.store.dispatch({ type: 'policy', policy: by, speed: by === CHECKPOINT ? 'normal' : 'fast' });
    await session.playOn();
  };
  return { branch: { turn, by, session, checkpoint }, ended: play() };
}

interface LaneProps {
  readonly branch: Branch;
  readonly close: () => void;
  /** Address of the environment server's pages. */
  readonly server: string | null;
}

/** The branch in its lane: its steps since the episode, and the player. */
export function BranchLane({ branch, close, server }: LaneProps) {
  const { session, turn, by, checkpoint } = branch;
  const place = useRef<HTMLElement>(null);
  const { state } = session.store;
  const { episode, focusRequests } = state;
  const [spoken, speak] = useState('');
  useLayoutEffect(() => {
    session.announce = speak;
  }, [session]);
  useLayoutEffect(() => {
    if (focusRequests > 0 && by === 'hand') focusIn(place.current!, episode !== undefined);
  }, [focusRequests]);
  const press = (event: KeyboardEvent) => {
    takeKey(event, session);
    // The page has other uses for the keys that the player takes.
    if (event.defaultPrevented) event.stopPropagation();
  };
  const moves = episode?.moves.slice(session.floor) ?? [];
  const isEnded = episode !== undefined && isOver(episode);
  const standing = isEnded
    ? moves.at(-1)?.info.success === true
      ? 'succeeded'
      : 'ended without success'
    : state.isOpening || state.isPolicyPlaying
      ? 'playing …'
      : checkpoint?.end !== undefined && checkpoint.end === episode?.moves.length
        ? `${moves.length === 0 ? 'no valid action' : 'not over'} within its turns`
        : 'open';
  const link = episode && `${server}#/watch/${encodeURIComponent(episode.session.session_id)}`;
  return html`<section ref=${place} class="panel branch" aria-label="Branch" onKeyDown=${press}>
    <div class="panel-head"><h2>Branch before turn ${turn + 1}, played by ${by === 'hand' ? 'hand' : by === CHECKPOINT ? `the checkpoint${checkpoint?.reply ? ` of step ${checkpoint.reply.step}` : ''}` : `the ${by} player`}</h2>
      <span class="fine" role="status">${standing}, return from here ${short(totalReward({ moves }))}</span>
      <span class="row tools">${link && html`<a class="button small" href=${link}>Open in Watch</a>`}<button type="button" class="small" onClick=${close}>Close the branch</button></span></div>
    <ol class="row branch-actions">${moves.map(({ action, reward }, i) => {
      const name = formatValue(namedAction(episode!.environment, action));
      return html`<li key=${i}><${Arrow} name=${name} />${name}${reward === 0 ? '' : html` <b class="number">${reward > 0 ? '+' : ''}${short(reward)}</b>`}</li>`;
    })}</ol>
    ${episode && html`<${Player} session=${session} state=${state} episode=${episode} label="Play on by hand" />`}
    <p class="visually-hidden" role="status">${spoken}</p>
  </section>`;
}

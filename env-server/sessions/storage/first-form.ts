import { isDeepStrictEqual } from 'node:util';
import type { Json } from '../../../shared/json.ts';
import type { SqliteSessionStore } from '../../store/sqlite-session-store.ts';
import { type LogPosition, logOf } from '../episodes/action-log.ts';
import { type EpisodeState, weighed } from '../episodes/episode.ts';
import { SessionImage } from './session-image.ts';
import type { StoredEpisode, StoredReply, StoredSettings } from './stored-session.ts';

const FIRST_VERSION = 1;

/** A session as version 1 wrote it: one document, in which every episode has its actions. */
interface SessionOfVersion1 extends StoredSettings {
  readonly episode: EpisodeOfVersion1;
  readonly past: {
    readonly episodes: number;
    readonly snapshotsTaken: number;
    readonly snapshots: readonly (readonly [snapshotId: string, episode: EpisodeOfVersion1])[];
    readonly replies: readonly Omit<StoredReply, 'number'>[];
    readonly rolledBack: boolean;
  };
}

type EpisodeOfVersion1 = Omit<StoredEpisode, 'restart' | 'log'> & { readonly actions: readonly Json[] };

/** Writes sessions of the first form as those of today; what their episodes have in common is shared from now on. */
export function upgradeFirstForm(store: SqliteSessionStore): void {
  store.upgrade(FIRST_VERSION, ({ owner, edition, document }) => {
    const { episode, past, ...settings } = JSON.parse(document!) as SessionOfVersion1;
    const read = readerOf([episode, ...past.snapshots.map(([, snapshot]) => snapshot)]);
    const { head, parts, remove } = new SessionImage().change({
      episode: read(episode),
      episodes: past.episodes,
      snapshotsTaken: past.snapshotsTaken,
      snapshots: past.snapshots.map(([id, snapshot]) => [id, read(snapshot)]),
      rolledBack: past.rolledBack,
      recorded: 0,
      replies: {
        added: past.replies.map((reply, number) => ({ ...reply, number })),
        removed: [],
        dropped: new Uint32Array(),
        end: { replies: past.replies.length, dropped: 0, turn: 0 },
      },
    });
    return {
      owner,
      edition,
      settings: JSON.stringify(settings),
      head: head as unknown as Json,
      parts,
      remove,
    };
  });
}

/** Reads episodes of a session, with the actions that they begin with in common. */
function readerOf(episodes: readonly EpisodeOfVersion1[]): (episode: EpisodeOfVersion1) => EpisodeState {
  const longest = episodes.reduce((a, b) => (b.actions.length > a.actions.length ? b : a)).actions;
  const shared = logOf(longest);
  const positionOf = (actions: readonly Json[]): LogPosition | undefined =>
    actions === longest || isDeepStrictEqual(actions, longest.slice(0, actions.length))
      ? shared(actions.length)
      : logOf(actions)(actions.length);
  return ({ actions, ...rest }) => weighed({ ...rest, restart: undefined, log: positionOf(actions) });
}

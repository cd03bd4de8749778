import { Type } from '../../../shared/schema/type.ts';
import { chain } from '../../environments/core/maybe-promise.ts';
import { beginEpisode, type EpisodeState } from '../../sessions/episodes/episode.ts';
import { sessionBudgetExceeded } from '../../sessions/limits/budgets.ts';
import type { Session as LiveSession } from '../../sessions/session.ts';
import { recordedEpisode } from '../../sessions/storage/recorded-episode.ts';
import { sessionOperation } from '../operation.ts';
import { AsksStateKey, DynamicsSeed, Options, Seed } from '../schemas/fields.ts';
import { Session } from '../schemas/session.ts';
import { sessionView } from './views.ts';

export const reset = sessionOperation({
  name: 'reset',
  method: 'POST',
  path: '/v1/sessions/{session_id}/reset',
  status: 200,
  summary: 'Begin a new episode',
  keyed: true,
  plays: true,
  problems: ['session_budget_exceeded'],
  body: {
    seed: Type.Optional(Seed),
    dynamics_seed: Type.Optional(DynamicsSeed),
    options: Type.Optional(Options),
    state_key: Type.Optional(AsksStateKey),
  },
  result: Session,
  handle(session, { input: { seed, dynamics_seed, options, state_key } }) {
    // Gymnasium writes "none" as null.
    const request = {
      seed: seed ?? undefined,
      dynamicsSeed: dynamics_seed ?? undefined,
      options: options ?? undefined,
      stateKeys: state_key ?? session.episode.stateKeys,
    };
    return chain(beginEpisode(session.variant, request), episode => {
      goOnWith(session, episode);
      return sessionView(session);
    });
  },
});

/** @throws Problem `session_budget_exceeded`, `session_closed` when the session ended meanwhile */
function goOnWith(session: LiveSession, episode: EpisodeState): void {
  const { id, variant, bytes, mostBytes, room } = session;
  try {
    session.requireOpen();
    const grown = episode.bytes - session.episode.bytes;
    if (grown > Math.max(0, room)) throw sessionBudgetExceeded(id, bytes, grown, mostBytes);
  } catch (error) {
    variant.releaseState(episode.state);
    throw error;
  }
  session.episode.dispose();
  session.begin(episode);
  const { seed, options } = episode;
  session.record('reset', { seed, options, episode: recordedEpisode(episode) });
}

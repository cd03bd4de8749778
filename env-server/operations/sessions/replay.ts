import type { Static } from 'typebox';
import { Type } from '../../../shared/schema/type.ts';
import { isPainted } from '../../environments/core/environment.ts';
import { chain } from '../../environments/core/maybe-promise.ts';
import { type EpisodeState, replayFor, type TrajectoryRecord } from '../../sessions/episodes/episode.ts';
import type { FinishedSession } from '../../sessions/finished-sessions.ts';
import { sizeOf } from '../../sessions/limits/size.ts';
import { Session } from '../../sessions/session.ts';
import { serverOperation } from '../operation.ts';
import { SessionId } from '../schemas/fields.ts';
import { Replay, type ReplayRecord } from '../schemas/trajectory.ts';

/** Estimated memory of the records of one reply, in bytes; at least one record is sent. */
const MAX_BYTES = 2 * 1024 * 1024;

export const replay = serverOperation({
  name: 'replay',
  method: 'GET',
  path: '/v1/sessions/{session_id}/replay',
  status: 200,
  scope: 'play',
  tag: 'sessions',
  summary: 'Look at an episode step by step',
  description:
    'Every step with the state as plain JSON, of a session that is open or ended within the last minute. The session is neither stepped nor kept from expiring.',
  keyed: false,
  plays: true,
  problems: ['unsupported', 'unknown_session', 'session_expired', 'session_closed', 'session_lost'],
  params: { session_id: SessionId },
  query: {
    from: Type.Optional(Type.Integer({ minimum: 0, description: 'The first step to send; 0 is the reset.' })),
  },
  result: Replay,
  handle({ sessions }, principal, { session_id, from = 0 }) {
    const seen = sessions.look(principal, session_id);
    const isOpen = seen instanceof Session;
    const episode = isOpen ? seen.episode.capture() : seen.episode;
    const known = isOpen ? seen.episode.ownRecords : seen.records;
    const format = isOpen && !isPainted(seen.format) ? seen.format : 'text';
    const { owner, variant } = seen;
    return chain(
      known ?? replayFor(owner, variant, episode, { format, structured: true }),
      (records): Static<typeof Replay> => ({
        session: headOf(seen, episode),
        ...pageOf(records.filter(record => record.step >= from)),
      }),
    );
  },
});

function headOf(seen: Session | FinishedSession, episode: EpisodeState): Static<typeof Replay>['session'] {
  const { id, variant, groupId, seed } = seen;
  const isOpen = seen instanceof Session;
  return {
    session_id: id,
    env_id: variant.environment.spec.id,
    group_id: groupId,
    episode_id: isOpen ? seen.episode.id : seen.episodeId,
    seed,
    config: variant.config,
    wrappers: [...variant.wrappers],
    options: episode.options,
    max_episode_steps: variant.stepsOf(episode.state),
    step: episode.step,
    ended: isOpen ? null : seen.ending,
  };
}

/** Page of as many records as one reply holds. */
function pageOf(records: readonly TrajectoryRecord[]): Pick<Static<typeof Replay>, 'records' | 'next'> {
  const page: Static<typeof ReplayRecord>[] = [];
  let bytes = 0;
  for (const { type: _type, ...record } of records) {
    bytes += sizeOf(record, MAX_BYTES);
    if (bytes > MAX_BYTES && page.length > 0) return { records: page, next: record.step };
    page.push(record);
  }
  return { records: page, next: null };
}

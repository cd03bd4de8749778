import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import { inScheduledSlices, type Sliced } from '../../environments/core/slices.ts';
import type { TrajectoryRecord } from '../../sessions/episodes/episode.ts';
import type { Session } from '../../sessions/session.ts';
import { sessionOperation } from '../operation.ts';
import { Trajectory } from '../schemas/trajectory.ts';
import { reseedsView } from './views.ts';

export const trajectory = sessionOperation({
  name: 'trajectory',
  method: 'GET',
  path: '/v1/sessions/{session_id}/trajectory',
  status: 200,
  summary: 'The episode so far',
  description:
    'Seed, options, every action and its result. Over REST as JSON Lines, a record a line; replaying the actions gives the same states.',
  keyed: false,
  plays: true,
  problems: ['unsupported'],
  result: Trajectory,
  mediaTypes: ['application/jsonl'],
  handle: (_services, session) => chain(trajectoryOf(session), records => ({ records })),
  represent: ({ records }) =>
    chain(inScheduledSlices(linesOf(records)), body => ({
      contentType: 'application/jsonl; charset=utf-8',
      body,
    })),
});

/** The reset and every step of the episode that a session plays. */
function trajectoryOf(session: Session): MaybePromise<TrajectoryRecord[]> {
  const { episode, variant } = session;
  return chain(episode.records(), ([first, ...steps]) => [
    {
      type: 'reset',
      session_id: session.id,
      episode_id: episode.id,
      env_id: variant.environment.spec.id,
      config: variant.config,
      wrappers: [...variant.wrappers],
      seed: session.seed,
      ...(episode.dynamicsSeed !== undefined && { dynamics_seed: episode.dynamicsSeed }),
      ...reseedsView(episode),
      options: episode.options,
      step: first.step,
      observation: first.observation,
      info: first.info,
    },
    ...steps,
  ]);
}

/** Characters that are written before others have their turn. */
const SLICE_LENGTH = 64 * 1024;

function* linesOf(records: readonly object[]): Sliced<Buffer> {
  const written: Buffer[] = [];
  let text = '';
  for (const record of records) {
    text += `${JSON.stringify(record)}\n`;
    if (text.length < SLICE_LENGTH) continue;
    written.push(Buffer.from(text));
    text = '';
    yield;
  }
  written.push(Buffer.from(text));
  return Buffer.concat(written);
}

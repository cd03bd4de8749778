import type { Static } from 'typebox';
import { Type } from '../../../shared/schema/type.ts';
import { Bag, nullable, Wrappers } from './fields.ts';
import { Info, Observation, Reseeds } from './session.ts';

const TrajectoryRecord = Type.Object(
  {
    type: Type.Enum(['reset', 'step'], { type: 'string' }),
    session_id: Type.Optional(Type.String()),
    episode_id: Type.Optional(Type.String()),
    env_id: Type.Optional(Type.String()),
    config: Type.Optional(Bag),
    wrappers: Type.Optional(Wrappers),
    seed: Type.Optional(Type.Union([Type.Integer(), Type.Null()])),
    dynamics_seed: Type.Optional(Type.Integer()),
    reseeds: Type.Optional(Reseeds),
    options: Type.Optional(Bag),
    step: Type.Integer(),
    action: Type.Optional(Type.Unknown()),
    observation: Observation,
    reward: Type.Optional(Type.Number()),
    terminated: Type.Optional(Type.Boolean()),
    truncated: Type.Optional(Type.Boolean()),
    info: Info,
  },
  { title: 'TrajectoryRecord', description: 'First the reset, then every step.' },
);

export const Trajectory = Type.Object({ records: Type.Array(TrajectoryRecord) }, { title: 'Trajectory' });

export const ReplayRecord = Type.Object(
  {
    step: Type.Integer(),
    action: Type.Optional(Type.Unknown()),
    observation: Observation,
    structured: Type.Optional(
      Type.Unknown({
        description: 'The state as plain JSON; absent where the environment cannot be replayed.',
      }),
    ),
    reward: Type.Optional(Type.Number()),
    terminated: Type.Optional(Type.Boolean()),
    truncated: Type.Optional(Type.Boolean()),
    info: Info,
  },
  { title: 'ReplayRecord' },
);

/** A session as a watcher sees it. */
export const SessionCard = Type.Object(
  {
    session_id: Type.String(),
    env_id: Type.String(),
    group_id: nullable(Type.String(), 'Shared by the members of a group.'),
    client: Type.String({ description: 'Name of the token that opened it.' }),
    episode_id: Type.String(),
    seed: nullable(Type.Integer(), 'Effective seed; null where the environment draws nothing.'),
    step: Type.Integer(),
    max_episode_steps: Type.Integer(),
    return: Type.Number({ description: 'Sum of the rewards of this episode so far.' }),
    terminated: Type.Boolean(),
    truncated: Type.Boolean(),
    failed: Type.Boolean({ description: 'An exception in the environment ended the episode.' }),
    success: Type.Boolean(),
    ended_by: Type.Optional(
      Type.String({ description: 'Reason why the episode ended, a name among `ends` of the environment.' }),
    ),
    action: Type.Optional(Type.Unknown({ description: 'The last one; a long one is cut.' })),
    text: Type.String({ description: 'The observation as text; a long one is cut.' }),
    structured: Type.Optional(Type.Unknown({ description: 'The state as plain JSON, unless it is large.' })),
    created_at: Type.String({ format: 'date-time' }),
    ended: nullable(
      Type.Enum(['session_expired', 'session_closed', 'session_lost'], { type: 'string' }),
      'How the session ended; null while it is open.',
    ),
  },
  { title: 'SessionCard' },
);
export type SessionCard = Static<typeof SessionCard>;

export const Replay = Type.Object(
  {
    session: Type.Object({
      session_id: Type.String(),
      env_id: Type.String(),
      group_id: nullable(Type.String(), 'Shared by the members of a group.'),
      episode_id: Type.String(),
      seed: nullable(Type.Integer(), 'Effective seed; null where the environment draws nothing.'),
      dynamics_seed: Type.Optional(Type.Integer()),
      reseeds: Type.Optional(Reseeds),
      config: Bag,
      wrappers: Wrappers,
      options: Bag,
      max_episode_steps: Type.Integer(),
      step: Type.Integer({ description: 'Steps taken in this episode.' }),
      ended: nullable(Type.String(), 'How the session ended; null while it is open.'),
    }),
    records: Type.Array(ReplayRecord),
    next: nullable(Type.Integer(), 'Pass as `from` for the records that follow; null where there are none.'),
  },
  { title: 'Replay', description: 'First the reset, then every step.' },
);
export type Replay = Static<typeof Replay>;

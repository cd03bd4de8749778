import type { Static } from 'typebox';
import { closed, Type } from '../../../shared/schema/type.ts';
import { MAX_PICTURE_SIZE, MIN_PICTURE_SIZE } from '../../environments/core/drawing/png.ts';
import type { SeenObservation } from '../../sessions/episodes/episode.ts';
import { Bag, nullable, Wrappers } from './fields.ts';

/** A part of an observation: text, or a picture. */
const Part = Type.Union(
  [
    closed({ type: Type.Literal('text'), text: Type.String() }),
    closed({
      type: Type.Literal('image'),
      mime: Type.String({ description: 'Such as `image/png`.' }),
      data: Type.String({ description: 'The file in base64.' }),
      width: Type.Optional(Type.Integer({ description: 'In pixels.' })),
      height: Type.Optional(Type.Integer({ description: 'In pixels.' })),
    }),
  ],
  { title: 'ObservationPart' },
);

const Observation = Type.Unsafe<SeenObservation>(
  Type.Union([Type.String(), Type.Array(Part), Bag], {
    title: 'Observation',
    description:
      'Text; an object where the format is `structured`; a list of texts and pictures where it is `parts`.',
  }),
);
const Info = Type.Unsafe<{ [key: string]: unknown }>({
  type: 'object',
  title: 'Info',
  description: 'Details of a step, with the environment’s own keys. Empty after a reset.',
  additionalProperties: true,
  properties: {
    success: Type.Boolean({ description: 'The task is solved.' }),
    action_is_valid: Type.Boolean({ description: 'The environment knows the action.' }),
    action_is_effective: Type.Boolean({ description: 'The action changed the state.' }),
    ended_by: Type.String({
      description:
        'In the step that ends the episode: the reason, a name among `ends` of the environment, e.g. `time_limit`.',
    }),
  },
});

const Reseeds = Type.Array(
  Type.Object({ step: Type.Integer(), dynamics_seed: Type.Integer() }, { title: 'Reseed' }),
  {
    description:
      'Changes of the random stream during the episode: after `step`, chance is drawn from `dynamics_seed`. Absent if there are none.',
  },
);
const StateKey = Type.String({
  description:
    'Names the state of environment and wrappers; present where the session was opened with `state_key`.',
});

/** A session in every reply about one. */
const named = {
  session_id: Type.String(),
  env_id: Type.String(),
  group_id: nullable(Type.String(), 'Shared by the members of a group.'),
};
const episodeId = Type.String({ description: 'Changes with every reset, restore and clone.' });
const seed = nullable(Type.Integer(), 'Effective seed; null where the environment draws nothing.');
const steps = Type.Integer({ description: 'Steps taken in this episode.' });
const totalReward = Type.Number({ description: 'Sum of the rewards of this episode so far.' });

const sessionProperties = {
  ...named,
  episode_id: episodeId,
  seed,
  dynamics_seed: Type.Optional(
    Type.Integer({
      description: 'Seed of all chance after the start; absent where the generator of `seed` continues.',
    }),
  ),
  reseeds: Type.Optional(Reseeds),
  step: steps,
  max_episode_steps: Type.Integer({ description: 'Steps after which this episode is cut.' }),
  level_id: Type.Optional(
    Type.String({
      description:
        'Names the level of an episode at step 0: equal for levels that the environment counts as the same, such as mirror images; absent where the first observation identifies the level.',
    }),
  ),
  state_key: Type.Optional(StateKey),
  observation: Observation,
  info: Info,
  expires_at: Type.String({
    format: 'date-time',
    description: 'When the session expires unless it is used.',
  }),
};

export const Session = Type.Object(sessionProperties, { title: 'Session' });
export type Session = Static<typeof Session>;

export const CreatedSession = Type.Object(
  {
    ...sessionProperties,
    sessions: Type.Optional(
      Type.Array(Session, { description: 'All members, the first included; present when `count` > 1.' }),
    ),
  },
  { title: 'CreatedSession', description: 'The session, or the first of the group.' },
);
export type CreatedSession = Static<typeof CreatedSession>;

export const SessionDetail = Type.Object(
  {
    ...sessionProperties,
    return: totalReward,
    terminated: Type.Boolean(),
    truncated: Type.Boolean(),
    structured: Type.Unknown({ description: 'The state as plain JSON.' }),
    config: Bag,
    wrappers: Wrappers,
    options: Bag,
    observation_format: Type.String(),
    created_at: Type.String({ format: 'date-time' }),
    memory: Type.Object(
      { bytes: Type.Integer(), limit_bytes: Type.Integer() },
      { description: 'Estimated memory of the session, and its limit.' },
    ),
    persistence: Type.Optional(
      Type.Object(
        { state: Type.Enum(['unsaved'], { type: 'string' }), reason: Type.String() },
        { description: 'Present when the session cannot be stored, and ends with the server.' },
      ),
    ),
  },
  { title: 'SessionDetail' },
);
export type SessionDetail = Static<typeof SessionDetail>;

export const SessionPage = Type.Object(
  {
    sessions: Type.Array(Session),
    next_cursor: nullable(Type.String(), 'Pass as `cursor` for the next page; null on the last.'),
  },
  { title: 'SessionPage' },
);

export const StepResult = Type.Object(
  {
    session_id: Type.String(),
    episode_id: Type.String(),
    step: Type.Integer({ description: 'Steps taken in this episode, this one included.' }),
    observation: Observation,
    reward: Type.Number(),
    terminated: Type.Boolean({ description: 'The episode ended by the rules of the environment.' }),
    truncated: Type.Boolean({ description: 'The episode was cut short, by a step limit for example.' }),
    info: Info,
    state_key: Type.Optional(StateKey),
  },
  { title: 'StepResult' },
);
export type StepResult = Static<typeof StepResult>;

export const Snapshot = Type.Object({ snapshot_id: Type.String() }, { title: 'Snapshot' });

export const ClonedSessions = Type.Object({ sessions: Type.Array(Session) }, { title: 'ClonedSessions' });

export const PictureSize = Type.Integer({
  minimum: MIN_PICTURE_SIZE,
  maximum: MAX_PICTURE_SIZE,
  description: 'Pixels of the longer side of a picture; as it is painted when absent.',
});

export const RenderMode = Type.Enum(['text', 'png', 'structured'], { type: 'string' });

export const Rendering = Type.Object(
  {
    mode: RenderMode,
    text: Type.Optional(Type.String()),
    png: Type.Optional(Type.String({ description: 'The picture in base64.' })),
    structured: Type.Optional(Type.Unknown()),
  },
  { title: 'Rendering', description: 'One of the fields, as `mode` says.' },
);
export type Rendering = Static<typeof Rendering>;

export const ReferencePlan = Type.Object(
  {
    policy: Type.String(),
    actions: Type.Array(Type.Unknown(), {
      description: 'Next actions in order; empty when there is nothing left to do.',
    }),
  },
  { title: 'ReferencePlan' },
);

export const ValidActions = Type.Object(
  {
    valid_actions: nullable(
      Type.Array(Type.String()),
      'As a player writes them; empty after the end of the episode, null where the environment cannot list them.',
    ),
  },
  { title: 'ValidActions' },
);
export type ValidActions = Static<typeof ValidActions>;

const outcome = {
  action: Type.Optional(Type.Unknown()),
  observation: Observation,
  reward: Type.Optional(Type.Number()),
  terminated: Type.Optional(Type.Boolean()),
  truncated: Type.Optional(Type.Boolean()),
  info: Info,
};

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
    ...outcome,
  },
  { title: 'TrajectoryRecord', description: 'First the reset, then every step.' },
);

export const Trajectory = Type.Object({ records: Type.Array(TrajectoryRecord) }, { title: 'Trajectory' });

export const ReplayRecord = Type.Object(
  {
    step: Type.Integer(),
    ...outcome,
    structured: Type.Optional(
      Type.Unknown({
        description: 'The state as plain JSON; absent where the environment cannot be replayed.',
      }),
    ),
  },
  { title: 'ReplayRecord' },
);

/** A session as a watcher sees it. */
export const SessionCard = Type.Object(
  {
    ...named,
    client: Type.String({ description: 'Name of the token that opened it.' }),
    episode_id: Type.String(),
    seed,
    step: Type.Integer(),
    max_episode_steps: Type.Integer(),
    return: totalReward,
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
      ...named,
      episode_id: Type.String(),
      seed,
      dynamics_seed: Type.Optional(Type.Integer()),
      reseeds: Type.Optional(Reseeds),
      config: Bag,
      wrappers: Wrappers,
      options: Bag,
      max_episode_steps: Type.Integer(),
      step: steps,
      ended: nullable(Type.String(), 'How the session ended; null while it is open.'),
    }),
    records: Type.Array(ReplayRecord),
    next: nullable(Type.Integer(), 'Pass as `from` for the records that follow; null where there are none.'),
  },
  { title: 'Replay', description: 'First the reset, then every step.' },
);
export type Replay = Static<typeof Replay>;

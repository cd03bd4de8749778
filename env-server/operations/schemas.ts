import { type Static, type TProperties, type TSchema, Type } from 'typebox';
import type { Json } from '../../shared/json.ts';
import { MAX_PICTURE_SIZE, MIN_PICTURE_SIZE } from '../environments/core/drawing/scale.ts';
import { PROBLEMS } from '../problems.ts';
import type { SeenObservation } from '../sessions/episodes/episode.ts';

/** Longest request key, group id and name a client may choose, in characters. */
const NAME_LENGTH = 128;
/** Most sessions one request may create. */
const GROUP_SIZE = 4096;
const MAX_TTL_SECONDS = 7 * 24 * 3600;

/** An object that refuses unknown keys. */
export const closed = <P extends TProperties>(
  properties: P,
  options: { title?: string; description?: string; examples?: readonly unknown[] } = {},
) => Type.Object(properties, { additionalProperties: false, ...options });

export const nullable = <S extends TSchema>(schema: S, description: string) =>
  Type.Union([schema, Type.Null()], { description });

/** Any JSON value. */
export const AnyJson = (options: { description?: string } = {}) => Type.Unsafe<Json>({ ...options });

export const Bag = Type.Record(Type.String(), AnyJson());

export const SessionId = Type.String({ minLength: 1, maxLength: NAME_LENGTH, description: 'The session.' });
export const EnvId = Type.String({
  minLength: 1,
  maxLength: NAME_LENGTH,
  description: 'Environment id, `[namespace/]Name-vN`.',
});
export const REQUEST_KEY = {
  minLength: 1,
  maxLength: NAME_LENGTH,
  description: 'Repeating a request with the same key returns the stored reply and changes nothing.',
};
export const RequestKey = Type.String(REQUEST_KEY);
export const Seed = nullable(
  Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  'Seeds the episode; drawn at random when absent or null. The effective seed is always returned.',
);
/** So that members of the largest group have safe integers. */
const MAX_DYNAMICS_SEED = Number.MAX_SAFE_INTEGER - GROUP_SIZE;
export const DynamicsSeed = nullable(
  Type.Integer({ minimum: 0, maximum: MAX_DYNAMICS_SEED }),
  'Seeds all chance after the start of the episode, which stays that of `seed`; absent or null: the generator of `seed` goes on. With `count`, member k gets `dynamics_seed` + k.',
);
export const Config = Type.Record(Type.String(), AnyJson(), {
  description:
    'Configuration by the environment’s `config_schema`; absent keys take their defaults. `preset` names a preset to start from.',
});
export const Options = nullable(
  Bag,
  'Pins the start of the episode, by the environment’s `options_schema`; null is the same as none.',
);
export const Count = Type.Integer({ minimum: 1, maximum: GROUP_SIZE, default: 1 });
export const TtlSeconds = Type.Number({
  exclusiveMinimum: 0,
  maximum: MAX_TTL_SECONDS,
  description: 'Idle seconds after which the session expires; the server’s default when absent.',
});
export const GroupId = Type.String({ minLength: 1, maxLength: NAME_LENGTH });
export const Format = Type.Enum(['text', 'grid', 'coord', 'grid_coord', 'image', 'structured', 'parts'], {
  type: 'string',
  default: 'text',
  description: 'Form of the observations, one of the environment’s `observation_formats`.',
});

export const WrapperChoice = closed(
  {
    name: Type.String({ minLength: 1, maxLength: NAME_LENGTH }),
    options: Type.Optional(Bag),
  },
  { title: 'WrapperChoice', examples: [{ name: 'time_limit', options: { max_steps: 20 } }] },
);
export const Wrappers = Type.Array(WrapperChoice, {
  maxItems: 16,
  description: 'Wrappers in the order they are applied.',
  examples: [[{ name: 'time_limit', options: { max_steps: 20 } }]],
});

/** A piece of an observation: text, or a picture. */
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

export const Observation = Type.Unsafe<SeenObservation>(
  Type.Union([Type.String(), Type.Array(Part), Bag], {
    title: 'Observation',
    description:
      'Text; an object where the format is `structured`; a list of texts and pictures where it is `parts`.',
  }),
);
export const Info = Type.Unsafe<{ [key: string]: unknown }>({
  type: 'object',
  title: 'Info',
  description: 'Of a step: what happened, the environment’s own keys included. Empty after a reset.',
  additionalProperties: true,
  properties: {
    success: Type.Boolean({ description: 'The task is solved.' }),
    action_is_valid: Type.Boolean({ description: 'The environment knows the action.' }),
    action_is_effective: Type.Boolean({ description: 'The action changed the state.' }),
  },
});

const sessionProperties = {
  session_id: Type.String(),
  env_id: Type.String(),
  group_id: nullable(Type.String(), 'Shared by the members of a group.'),
  episode_id: Type.String({ description: 'Changes with every reset, restore and clone.' }),
  seed: nullable(Type.Integer(), 'Effective seed; null where the environment draws nothing.'),
  dynamics_seed: Type.Optional(
    Type.Integer({
      description: 'Seed of all chance after the start; absent where the generator of `seed` goes on.',
    }),
  ),
  step: Type.Integer({ description: 'Steps taken in this episode.' }),
  level_id: Type.Optional(
    Type.String({
      description:
        'Names the level of an episode at step 0: equal for levels that the environment counts as the same, such as mirror images; absent where its first observation tells levels apart.',
    }),
  ),
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
    return: Type.Number({ description: 'Sum of the rewards of this episode so far.' }),
    terminated: Type.Boolean(),
    truncated: Type.Boolean(),
    structured: Type.Unknown({ description: 'The state as plain JSON.' }),
    config: Bag,
    wrappers: Wrappers,
    options: Bag,
    observation_format: Type.String(),
    max_episode_steps: Type.Integer(),
    created_at: Type.String({ format: 'date-time' }),
    memory: Type.Object(
      { bytes: Type.Integer(), limit_bytes: Type.Integer() },
      { description: 'Estimated memory of the session, and what it may take.' },
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

export const TrajectoryRecord = Type.Object(
  {
    type: Type.Enum(['reset', 'step'], { type: 'string' }),
    session_id: Type.Optional(Type.String()),
    episode_id: Type.Optional(Type.String()),
    env_id: Type.Optional(Type.String()),
    config: Type.Optional(Bag),
    wrappers: Type.Optional(Wrappers),
    seed: Type.Optional(Type.Union([Type.Integer(), Type.Null()])),
    dynamics_seed: Type.Optional(Type.Integer()),
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
export type TrajectoryRecord = Static<typeof TrajectoryRecord>;

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

/** A session as somebody sees it who only looks. */
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

export const ReferencePlan = Type.Object(
  {
    policy: Type.String(),
    actions: Type.Array(Type.Unknown(), { description: 'Next actions, best first to do; empty when done.' }),
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

export const EnvironmentSummary = Type.Object(
  {
    env_id: Type.String(),
    title: Type.String(),
    tags: Type.Array(Type.String()),
    max_episode_steps: Type.Integer(),
  },
  { title: 'EnvironmentSummary' },
);

export const EnvironmentList = Type.Object(
  {
    environments: Type.Array(EnvironmentSummary),
    next_cursor: nullable(Type.String(), 'Pass as `cursor` for the next page; null on the last.'),
  },
  { title: 'EnvironmentList' },
);

export const SpaceDocument = Type.Object(
  {
    json_schema: Type.Unknown({ description: 'JSON Schema of a value.' }),
    gymnasium: Type.Unknown({
      description:
        'Type and parameters of the Gymnasium space. A null charset admits any character, a null bound is none.',
    }),
  },
  { title: 'Space' },
);

export const EnvironmentDocument = Type.Object(
  {
    env_id: Type.String(),
    title: Type.String(),
    description: Type.String({ description: 'The rules, in Markdown.' }),
    tags: Type.Array(Type.String()),
    config: Type.Record(Type.String(), AnyJson(), {
      description: 'The effective configuration this document describes.',
    }),
    wrappers: Wrappers,
    config_schema: Type.Unknown({ description: 'JSON Schema with defaults.' }),
    options_schema: Type.Unknown({ description: 'JSON Schema of reset options.' }),
    presets: Type.Record(Type.String(), Bag),
    instruction: Type.String({ description: 'What a player is told about the task.' }),
    legend: Type.Array(Type.Object({ symbol: Type.String(), meaning: Type.String() })),
    actions: Type.Optional(
      Type.Array(Type.String(), { description: 'Names of the actions in the order of their ids.' }),
    ),
    action_format: Type.Optional(
      Type.String({ description: 'How an action is written where it is free text.' }),
    ),
    vocabulary: Type.Optional(
      Type.Array(Type.String(), { description: 'Words that observations and actions are made of.' }),
    ),
    observation_space: SpaceDocument,
    structured_observation_space: SpaceDocument,
    action_space: SpaceDocument,
    observation_formats: Type.Array(Type.String()),
    reward_range: Type.Array(Type.Union([Type.Number(), Type.Null()]), {
      description: 'Least and greatest reward of a step; null where unbounded.',
      minItems: 2,
      maxItems: 2,
    }),
    reward_threshold: Type.Optional(Type.Number({ description: 'Mean return that counts as solved.' })),
    known_optimum: Type.Optional(Type.Object({ success: Type.Number(), source: Type.String() })),
    max_episode_steps: Type.Integer(),
    render_modes: Type.Array(Type.String()),
    references: Type.Array(Type.Object({ name: Type.String(), title: Type.String() })),
    capabilities: Type.Object({
      seed: Type.Boolean(),
      snapshot: Type.Boolean(),
      render: Type.Boolean(),
    }),
    example_action: Type.Unknown(),
    condition: Type.Optional(
      Type.Object(
        { summary: Type.String() },
        {
          additionalProperties: true,
          description: 'What this machine offers the environment, e.g. the isolation in force.',
        },
      ),
    ),
    history: Type.Array(Type.Object({ version: Type.Integer(), change: Type.String() })),
  },
  { title: 'Environment' },
);
export type EnvironmentDocument = Static<typeof EnvironmentDocument>;

export const ProblemSchema = Type.Object(
  {
    type: Type.String(),
    title: Type.String(),
    status: Type.Integer(),
    detail: Type.String(),
    code: Type.Unsafe<keyof typeof PROBLEMS>({ type: 'string', enum: Object.keys(PROBLEMS) }),
    retryable: Type.Boolean({ description: 'The same request may succeed later.' }),
    trace_id: Type.String(),
    retry_after_s: Type.Optional(Type.Number()),
    errors: Type.Optional(
      Type.Array(
        Type.Object({
          pointer: Type.String({ description: 'JSON pointer into the request.' }),
          detail: Type.String(),
        }),
      ),
    ),
  },
  { title: 'Problem', description: 'RFC 9457 problem document.' },
);

import type { Static, TSchema } from 'typebox';
import type { Json } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';

/** Longest request key, group id and name that a client may choose, in characters. */
export const NAME_LENGTH = 128;
/** Most sessions that one request may create. */
const GROUP_SIZE = 4096;
const MAX_TTL_SECONDS = 7 * 24 * 3600;

export const nullable = <S extends TSchema>(schema: S, description: string) =>
  Type.Union([schema, Type.Null()], { description });

/** Any JSON value. */
export const AnyJson = (options: { description?: string } = {}) => Type.Unsafe<Json>({ ...options });

/** Most keys of a configuration or of options. */
const MAX_KEYS = 1000;
export const Bag = Type.Record(Type.String(), AnyJson(), { maxProperties: MAX_KEYS });

export const SessionId = Type.String({ minLength: 1, maxLength: NAME_LENGTH, description: 'The session.' });
export const EnvId = Type.String({
  minLength: 1,
  maxLength: NAME_LENGTH,
  description: 'Environment id, `[namespace/]Name-vN`.',
  examples: ['FrozenLake-v0'],
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
/** Keeps the seeds of the largest group safe integers. */
const MAX_DYNAMICS_SEED = Number.MAX_SAFE_INTEGER - GROUP_SIZE;
export const DynamicsSeed = nullable(
  Type.Integer({ minimum: 0, maximum: MAX_DYNAMICS_SEED }),
  'Seeds all chance after the start of the episode, which stays that of `seed`; absent or null: the generator of `seed` continues. With `count`, member k gets `dynamics_seed` + k.',
);
export const FreshDynamicsSeed = nullable(
  Type.Integer({ minimum: 0, maximum: MAX_DYNAMICS_SEED }),
  'Seeds all chance from here on; absent or null: random draws come out as they would have. Needs the capability `reseed`. Clone k gets `dynamics_seed` + k.',
);
export const AsksStateKey = Type.Boolean({
  description:
    'Replies have a `state_key`: equal for equal states of environment and wrappers, which the generator is not part of. Clones inherit it, and episodes that a reset begins. Needs the capability `snapshot`.',
});
export const Config = Type.Record(Type.String(), AnyJson(), {
  maxProperties: MAX_KEYS,
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

const WrapperChoice = closed(
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

/** Longest frame id in characters, because replies repeat it. */
export const MAX_FRAME_ID_LENGTH = 1024;

/** Id of a WebSocket frame. */
export const FrameIdSchema = Type.Union([Type.String({ maxLength: MAX_FRAME_ID_LENGTH }), Type.Integer()]);

const summary = {
  env_id: Type.String(),
  aliases: Type.Optional(
    Type.Array(Type.String(), { description: 'Other ids that the environment answers under.' }),
  ),
  title: Type.String(),
  tags: Type.Array(Type.String()),
  max_episode_steps: Type.Integer(),
};

const EnvironmentSummary = Type.Object(summary, { title: 'EnvironmentSummary' });

export const EnvironmentList = Type.Object(
  {
    environments: Type.Array(EnvironmentSummary),
    next_cursor: nullable(Type.String(), 'Pass as `cursor` for the next page; null on the last.'),
  },
  { title: 'EnvironmentList' },
);

const SpaceDocument = Type.Object(
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
    ...summary,
    description: Type.String({ description: 'The rules, in Markdown.' }),
    config: Type.Record(Type.String(), AnyJson(), {
      description: 'The effective configuration this document describes.',
    }),
    wrappers: Wrappers,
    config_schema: Type.Unknown({ description: 'JSON Schema with defaults.' }),
    options_schema: Type.Unknown({ description: 'JSON Schema of reset options.' }),
    presets: Type.Record(Type.String(), Bag),
    instruction: Type.String({ description: 'Description of the task for the player.' }),
    legend: Type.Array(Type.Object({ symbol: Type.String(), meaning: Type.String() })),
    actions: Type.Optional(
      Type.Array(Type.String(), { description: 'Names of the actions in the order of their ids.' }),
    ),
    action_format: Type.Optional(
      Type.String({ description: 'How an action is written where it is free text.' }),
    ),
    example_actions: Type.Optional(
      Type.Array(AnyJson(), {
        description:
          'Actions that the reference player `random` draws from, where the space is text or JSON.',
      }),
    ),
    vocabulary: Type.Optional(
      Type.Array(Type.String(), { description: 'Words that observations and actions are made of.' }),
    ),
    observation_space: SpaceDocument,
    structured_observation_space: SpaceDocument,
    action_space: SpaceDocument,
    observation_formats: Type.Array(Type.String()),
    reward_range: Type.Array(Type.Union([Type.Number(), Type.Null()]), {
      description: 'Smallest and largest reward of a step; null where unbounded.',
      minItems: 2,
      maxItems: 2,
    }),
    reward_threshold: Type.Optional(Type.Number({ description: 'Mean return that counts as solved.' })),
    known_optimum: Type.Optional(Type.Object({ success: Type.Number(), source: Type.String() })),
    ends: Type.Record(Type.String(), Type.String(), {
      description:
        'Values of `info.ended_by` in steps that end an episode, and their meaning. A custom environment may return others, or none.',
    }),
    render_modes: Type.Array(Type.String()),
    references: Type.Array(Type.Object({ name: Type.String(), title: Type.String() })),
    capabilities: Type.Object({
      seed: Type.Boolean(),
      snapshot: Type.Boolean(),
      reseed: Type.Boolean({ description: '`clone` and `restore` take a `dynamics_seed`.' }),
      render: Type.Boolean(),
    }),
    example_action: Type.Unknown(),
    condition: Type.Optional(
      Type.Object(
        { summary: Type.String() },
        {
          additionalProperties: true,
          description: 'What this machine offers the environment, e.g. its isolation.',
        },
      ),
    ),
    history: Type.Array(Type.Object({ version: Type.Integer(), change: Type.String() })),
  },
  { title: 'Environment' },
);
export type EnvironmentDocument = Static<typeof EnvironmentDocument>;

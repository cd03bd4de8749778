import Type, { type Static, type TProperties } from 'typebox';
import type { Json } from '../../shared/json.ts';

/** Longest id and name, in characters. */
const NAME_LENGTH = 128;
const LONGEST_TEXT = 20_000;
export const LONGEST_SOURCE = 256 * 1024;
const MOST_STEPS = 100_000;
/** Steps of an episode where the definition names none. */
export const DEFAULT_MAX_STEPS = 100;
const LONGEST_URL = 2048;

const closed = <P extends TProperties>(
  properties: P,
  options: { title?: string; description?: string } = {},
) => Type.Object(properties, { additionalProperties: false, ...options });

const bag = (description: string) => Type.Record(Type.String(), Type.Unsafe<Json>({}), { description });

const about = {
  title: Type.String({ minLength: 1, maxLength: 200 }),
  description: Type.Optional(
    Type.String({ maxLength: LONGEST_TEXT, description: 'The rules for readers, in Markdown.' }),
  ),
  tags: Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: NAME_LENGTH }), { maxItems: 16 })),
};

const task = {
  ...about,
  instruction: Type.String({
    minLength: 1,
    maxLength: LONGEST_TEXT,
    description: 'What a player is told: the task and how it is won.',
  }),
  max_episode_steps: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: MOST_STEPS,
      default: DEFAULT_MAX_STEPS,
      description:
        'Steps after which an episode is truncated; sessions may ask for fewer with `config.max_steps`.',
    }),
  ),
};

const Reward = Type.Number({ minimum: -1e12, maximum: 1e12 });

export const Outcome = closed(
  {
    to: Type.String({ description: 'Name of the state that is reached.' }),
    probability: Type.Optional(
      Type.Number({
        exclusiveMinimum: 0,
        maximum: 1,
        default: 1,
        description: 'The outcomes of one action sum to 1.',
      }),
    ),
    reward: Type.Optional(Type.Number({ minimum: -1e12, maximum: 1e12, default: 0 })),
  },
  { title: 'TabularOutcome' },
);
export type Outcome = Static<typeof Outcome>;

export const TabularState = closed(
  {
    text: Type.String({ maxLength: LONGEST_TEXT, description: 'What the player sees.' }),
    success: Type.Optional(
      Type.Boolean({ default: false, description: 'An episode that ends here is a success.' }),
    ),
    transitions: Type.Optional(
      Type.Record(Type.String(), Type.Array(Outcome, { minItems: 1, maxItems: 1000 }), {
        description:
          'Action → outcomes. An action that is not listed is invalid in this state; a state without transitions ends the episode.',
      }),
    ),
  },
  { title: 'TabularState' },
);
export type TabularState = Static<typeof TabularState>;

export const TabularDefinition = closed(
  {
    kind: Type.Literal('tabular'),
    ...task,
    actions: Type.Array(Type.String({ minLength: 1, maxLength: NAME_LENGTH }), {
      minItems: 1,
      maxItems: 1000,
      description: 'Names of the actions; their ids count from 0.',
    }),
    start: Type.Record(Type.String(), Type.Number({ exclusiveMinimum: 0, maximum: 1 }), {
      minProperties: 1,
      description: 'State → probability to start there; they sum to 1.',
    }),
    states: Type.Record(Type.String(), TabularState, { minProperties: 1 }),
  },
  { title: 'TabularDefinition', description: 'A Markov decision process, written out.' },
);
export type TabularDefinition = Static<typeof TabularDefinition>;

const ActionSpace = Type.Union(
  [
    closed({
      type: Type.Literal('Discrete'),
      names: Type.Array(Type.String({ minLength: 1, maxLength: NAME_LENGTH }), {
        minItems: 1,
        maxItems: 10_000,
        description: 'Names of the actions; their ids count from `start`.',
      }),
      start: Type.Optional(Type.Integer({ default: 0 })),
    }),
    closed({
      type: Type.Literal('Text'),
      max_length: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000, default: 2000 })),
      format: Type.Optional(
        Type.String({ maxLength: 2000, description: 'How an action is written, e.g. `guess[number]`.' }),
      ),
    }),
    closed({
      type: Type.Literal('Json'),
      schema: bag(
        'JSON Schema of an action; see docs/custom-environments.md for the keywords that it may use.',
      ),
      format: Type.Optional(Type.String({ maxLength: 2000, description: 'How an action is written.' })),
    }),
  ],
  { title: 'DefinedActionSpace' },
);
export type DefinedActionSpace = Static<typeof ActionSpace>;

const behaviour = {
  action_space: ActionSpace,
  example_action: Type.Unsafe<Json>({ description: 'An action of the space.' }),
  observation_max_length: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 1_000_000, default: 10_000, description: 'Longest observation.' }),
  ),
  reward_range: Type.Optional(
    Type.Array(Reward, {
      minItems: 2,
      maxItems: 2,
      description: 'Least and greatest reward of one step; unbounded when absent.',
    }),
  ),
  config_schema: Type.Optional(
    bag(
      'JSON Schema of the configuration: an object whose properties have defaults. Without it there is nothing to configure but `max_steps`.',
    ),
  ),
  options_schema: Type.Optional(bag('JSON Schema of reset options, which pin the start of an episode.')),
};

export const ScriptDefinition = closed(
  {
    kind: Type.Literal('script'),
    ...task,
    ...behaviour,
    source: Type.Union(
      [
        Type.String({ minLength: 1, maxLength: LONGEST_SOURCE }),
        Type.Array(Type.String({ maxLength: LONGEST_SOURCE }), { minItems: 1, maxItems: 20_000 }),
      ],
      {
        description:
          'JavaScript, whole or line by line, with the functions `reset(config, rng, options)`, `step(state, action, rng)`, `observe(state)` and, if it likes, `validActions(state)`.',
      },
    ),
  },
  { title: 'ScriptDefinition', description: 'JavaScript that runs in a sandbox.' },
);
export type ScriptDefinition = Static<typeof ScriptDefinition>;

/** The source of a script as one text. */
export function sourceOf({ source }: ScriptDefinition): string {
  return typeof source === 'string' ? source : source.join('\n');
}

const Url = Type.String({
  minLength: 1,
  maxLength: LONGEST_URL,
  description: 'http:// or https:// address of the service; its routes are found below it.',
});

const access = {
  url: Url,
  headers: Type.Optional(
    Type.Record(Type.String(), Type.String({ maxLength: 4096 }), {
      description: 'Sent with every request, e.g. `authorization`. Never shown again.',
    }),
  ),
  timeout_ms: Type.Optional(
    Type.Integer({ minimum: 100, maximum: 300_000, default: 10_000, description: 'For one reset or step.' }),
  ),
};

const Wrappers = Type.Array(
  closed({
    name: Type.String({ minLength: 1, maxLength: NAME_LENGTH }),
    options: Type.Optional(bag('By the wrapper’s own schema.')),
  }),
  { maxItems: 16, description: 'Applied in this order: the first is the innermost.' },
);

export const WebhookDefinition = closed(
  {
    kind: Type.Literal('remote'),
    protocol: Type.Literal('webhook'),
    ...task,
    ...behaviour,
    ...access,
    capabilities: Type.Optional(
      closed({
        seed: Type.Optional(
          Type.Boolean({
            default: true,
            description: 'The same seed and actions give the same episode. Where false, a seed is refused.',
          }),
        ),
        snapshot: Type.Optional(
          Type.Boolean({
            default: false,
            description:
              'Every reply has the whole state as plain JSON in `state`, and every step request brings it back; the service keeps nothing.',
          }),
        ),
        valid_actions: Type.Optional(
          Type.Boolean({
            default: false,
            description: 'Every reply lists the actions that are legal now in `valid_actions`.',
          }),
        ),
      }),
    ),
  },
  {
    title: 'WebhookDefinition',
    description: 'A service of yours that answers `POST {url}/reset|step|close`.',
  },
);
export type WebhookDefinition = Static<typeof WebhookDefinition>;

export const RagenDefinition = closed(
  {
    kind: Type.Literal('remote'),
    protocol: Type.Literal('ragen'),
    ...access,
    env_id: Type.String({ minLength: 1, maxLength: NAME_LENGTH, description: 'Its id on the other server.' }),
    config: Type.Optional(
      bag('Its configuration there; it is described and played under this one, whatever the session.'),
    ),
    wrappers: Type.Optional(Wrappers),
    title: Type.Optional(about.title),
    tags: about.tags,
  },
  { title: 'RagenDefinition', description: 'An environment of another server like this one.' },
);
export type RagenDefinition = Static<typeof RagenDefinition>;

export const OpenEnvDefinition = closed(
  {
    kind: Type.Literal('remote'),
    protocol: Type.Literal('openenv'),
    ...access,
    title: Type.Optional(about.title),
    description: about.description,
    tags: about.tags,
    instruction: Type.Optional(task.instruction),
    max_episode_steps: task.max_episode_steps,
    transport: Type.Optional(
      Type.Union([Type.Literal('websocket'), Type.Literal('http')], {
        default: 'websocket',
        description: 'Over `http` sessions are told apart by the header X-Session-Id.',
      }),
    ),
    action_field: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: NAME_LENGTH,
        description:
          'Field of the service’s action that a text action goes into; otherwise actions are objects.',
      }),
    ),
    observation_field: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: NAME_LENGTH,
        description:
          'Field of its observation that is shown as text; otherwise the whole observation as JSON.',
      }),
    ),
    example_action: Type.Unsafe<Json>({ description: 'An action that the service takes.' }),
    seed: Type.Optional(
      Type.Boolean({
        default: false,
        description: 'The service keeps to a seed. Where false, a seed is refused.',
      }),
    ),
  },
  { title: 'OpenEnvDefinition', description: 'A service that speaks the protocol of OpenEnv.' },
);
export type OpenEnvDefinition = Static<typeof OpenEnvDefinition>;

export type RemoteDefinition = WebhookDefinition | RagenDefinition | OpenEnvDefinition;

export const ComposedDefinition = closed(
  {
    kind: Type.Literal('composed'),
    title: Type.Optional(about.title),
    description: about.description,
    tags: about.tags,
    env_id: Type.String({
      minLength: 1,
      maxLength: NAME_LENGTH,
      description: 'The environment to start from, built in or registered.',
    }),
    config: Type.Optional(
      bag('Values that become the defaults of its configuration; `preset` names a preset to start from.'),
    ),
    wrappers: Type.Optional(Wrappers),
  },
  { title: 'ComposedDefinition', description: 'An existing environment with other defaults and wrappers.' },
);
export type ComposedDefinition = Static<typeof ComposedDefinition>;

export type Definition = TabularDefinition | ScriptDefinition | RemoteDefinition | ComposedDefinition;

export const KINDS = [
  'tabular',
  'script',
  'remote',
  'composed',
] as const satisfies readonly Definition['kind'][];
export const PROTOCOLS = [
  'webhook',
  'ragen',
  'openenv',
] as const satisfies readonly RemoteDefinition['protocol'][];

/** Schemas of definitions by kind, remote ones by protocol. */
export const DEFINITIONS = {
  tabular: TabularDefinition,
  script: ScriptDefinition,
  remote: { webhook: WebhookDefinition, ragen: RagenDefinition, openenv: OpenEnvDefinition },
  composed: ComposedDefinition,
} as const;

export const Definition = Type.Unsafe<Definition>(
  Type.Union(
    [
      TabularDefinition,
      ScriptDefinition,
      WebhookDefinition,
      RagenDefinition,
      OpenEnvDefinition,
      ComposedDefinition,
    ],
    { title: 'Definition', description: 'A custom environment; `kind` says how it is made.' },
  ),
);

import type { Static } from 'typebox';
import type { Json } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { DEFAULT_CONNECTIONS } from '../remote/endpoint.ts';
import { MAX_REQUESTS } from '../remote/network.ts';
import {
  about,
  bag,
  behavior,
  EndName,
  MAX_TEXT_LENGTH,
  NAME_LENGTH,
  REWARD,
  task,
  Wrappers,
  wordLists,
} from './definition-parts.ts';

export const MAX_SOURCE_LENGTH = 256 * 1024;

export const ScriptDefinition = closed(
  {
    kind: Type.Literal('script'),
    ...task,
    ...behavior,
    ...wordLists,
    source: Type.Union(
      [
        Type.String({ minLength: 1, maxLength: MAX_SOURCE_LENGTH }),
        Type.Array(Type.String({ maxLength: MAX_SOURCE_LENGTH }), { minItems: 1, maxItems: 20_000 }),
      ],
      {
        description:
          'JavaScript, whole or line by line, with the functions `reset(config, rng, options)`, `step(state, action, rng)`, `observe(state)` and optionally `validActions(state)`.',
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

const MAX_STATES = 20_000;
const MAX_ACTIONS = 1000;
/** Longest name of a state, in characters. */
export const MAX_STATE_NAME_LENGTH = 256;

const TabularOutcome = closed(
  {
    to: Type.String({
      maxLength: MAX_STATE_NAME_LENGTH,
      description: 'Name of the state that is reached.',
    }),
    probability: Type.Optional(
      Type.Number({
        exclusiveMinimum: 0,
        maximum: 1,
        default: 1,
        description: 'The outcomes of one action sum to 1.',
      }),
    ),
    reward: Type.Optional(Type.Number({ ...REWARD, default: 0 })),
  },
  { title: 'TabularOutcome' },
);

const TabularState = closed(
  {
    text: Type.String({ maxLength: MAX_TEXT_LENGTH, description: 'What the player sees.' }),
    success: Type.Optional(
      Type.Boolean({ default: false, description: 'An episode that ends here is a success.' }),
    ),
    ended_by: Type.Optional(
      EndName('Reason of the end, for `info.ended_by`; only in states without transitions.'),
    ),
    transitions: Type.Optional(
      Type.Record(Type.String(), Type.Array(TabularOutcome, { minItems: 1, maxItems: 1000 }), {
        maxProperties: MAX_ACTIONS,
        description:
          'Action → outcomes. An action that is not listed is invalid in this state; a state without transitions ends the episode.',
      }),
    ),
  },
  { title: 'TabularState' },
);

export const TabularDefinition = closed(
  {
    kind: Type.Literal('tabular'),
    ...task,
    actions: Type.Array(Type.String({ minLength: 1, maxLength: NAME_LENGTH }), {
      minItems: 1,
      maxItems: MAX_ACTIONS,
      description: 'Names of the actions; their ids count from 0.',
    }),
    start: Type.Record(Type.String(), Type.Number({ exclusiveMinimum: 0, maximum: 1 }), {
      minProperties: 1,
      maxProperties: MAX_STATES,
      description: 'State → probability to start there; they sum to 1.',
    }),
    states: Type.Record(Type.String(), TabularState, { minProperties: 1, maxProperties: MAX_STATES }),
  },
  { title: 'TabularDefinition', description: 'A Markov decision process, written out.' },
);
export type TabularDefinition = Static<typeof TabularDefinition>;

const MAX_URL_LENGTH = 2048;
const MAX_HEADERS = 32;

const Url = Type.String({
  minLength: 1,
  maxLength: MAX_URL_LENGTH,
  description: 'http:// or https:// address of the service; its routes are found below it.',
});

const name = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: NAME_LENGTH, description }));

const flag = (value: boolean, description: string) =>
  Type.Optional(Type.Boolean({ default: value, description }));

const access = {
  url: Url,
  headers: Type.Optional(
    Type.Record(
      Type.String(),
      Type.Union([
        Type.String({ maxLength: 4096 }),
        closed({
          $env: Type.String({
            minLength: 1,
            maxLength: NAME_LENGTH,
            description: 'Name of a variable of the server that holds the value.',
          }),
        }),
      ]),
      {
        maxProperties: MAX_HEADERS,
        description:
          'Sent with every request, e.g. `authorization`. Kept encrypted and never shown again; `{"$env": "RAGEN_SECRET_NAME"}` takes the value from a variable of the server instead.',
      },
    ),
  ),
  timeout_ms: Type.Optional(
    Type.Integer({
      minimum: 100,
      maximum: 300_000,
      default: 10_000,
      description: 'For one reset or step, from when it has a connection.',
    }),
  ),
  connections: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: MAX_REQUESTS,
      default: DEFAULT_CONNECTIONS,
      description: 'Maximum requests to the service at a time; others wait for up to 30 s.',
    }),
  ),
};

export const WebhookDefinition = closed(
  {
    kind: Type.Literal('remote'),
    protocol: Type.Literal('webhook'),
    ...task,
    ...behavior,
    ...wordLists,
    ...access,
    capabilities: Type.Optional(
      closed({
        seed: flag(true, 'The same seed and actions give the same episode. If false, a seed is refused.'),
        snapshot: flag(
          false,
          'Every reply has the whole state as plain JSON in `state`, and every step request sends it back; the service stores nothing.',
        ),
        valid_actions: flag(false, 'Every reply lists the actions that are legal now in `valid_actions`.'),
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
    config: Type.Optional(bag('Its configuration there, for all sessions.')),
    wrappers: Type.Optional(Wrappers),
    title: Type.Optional(about.title),
    tags: about.tags,
  },
  { title: 'RagenDefinition', description: 'An environment of another server like this one.' },
);
export type RagenDefinition = Static<typeof RagenDefinition>;

/** Fields of services that describe themselves. */
const served = {
  title: Type.Optional(about.title),
  description: about.description,
  tags: about.tags,
  instruction: Type.Optional(task.instruction),
  max_episode_steps: task.max_episode_steps,
  example_action: Type.Unsafe<Json>({ description: 'An action that the service accepts.' }),
  ...wordLists,
};

export const OpenEnvDefinition = closed(
  {
    kind: Type.Literal('remote'),
    protocol: Type.Literal('openenv'),
    ...access,
    ...served,
    transport: Type.Optional(
      Type.Union([Type.Literal('websocket'), Type.Literal('http')], {
        default: 'websocket',
        description: 'Over `http` the header X-Session-Id identifies the session.',
      }),
    ),
    action_field: name(
      'Field of the service’s action that takes a text action; without it actions are objects.',
    ),
    observation_field: name(
      'Field of its observation that is shown as text; without it the whole observation is shown as JSON.',
    ),
    tools: flag(
      false,
      'Actions call its MCP tools: `{"name": …, "input": {…}}`. The service lists them at `POST {url}/mcp`.',
    ),
    seed: flag(false, 'The service is deterministic under a seed. If false, a seed is refused.'),
  },
  { title: 'OpenEnvDefinition', description: 'A service that speaks the protocol of OpenEnv.' },
);
export type OpenEnvDefinition = Static<typeof OpenEnvDefinition>;

export const OrsDefinition = closed(
  {
    kind: Type.Literal('remote'),
    protocol: Type.Literal('ors'),
    ...access,
    env_name: name('Its name there; omit it for a service with paths that name no environment.'),
    split: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: NAME_LENGTH,
        default: 'train',
        description: 'The default split; a session can choose another. A seed chooses the task.',
      }),
    ),
    ...served,
    action_tool: name('Tool that a text action calls; without it an action is `{"name": …, "input": {…}}`.'),
    action_field: name('Argument of that tool that takes the text.'),
    seed: flag(true, 'The same task and calls give the same episode. If false, a seed is refused.'),
  },
  { title: 'OrsDefinition', description: 'A service that speaks the Open Reward Standard.' },
);
export type OrsDefinition = Static<typeof OrsDefinition>;

export type RemoteDefinition = WebhookDefinition | RagenDefinition | OpenEnvDefinition | OrsDefinition;

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
  'ors',
] as const satisfies readonly RemoteDefinition['protocol'][];

/** Schemas of definitions by kind, remote ones by protocol. */
export const DEFINITIONS = {
  tabular: TabularDefinition,
  script: ScriptDefinition,
  remote: {
    webhook: WebhookDefinition,
    ragen: RagenDefinition,
    openenv: OpenEnvDefinition,
    ors: OrsDefinition,
  },
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
      OrsDefinition,
      ComposedDefinition,
    ],
    { title: 'Definition', description: 'A custom environment; `kind` says how it is made.' },
  ),
);

import type { Static } from 'typebox';
import type { Json } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { about, bag, behavior, NAME_LENGTH, task, Wrappers } from '../definitions/definition-parts.ts';
import { wordLists } from '../definitions/word-lists.ts';
import { DEFAULT_CONNECTIONS } from './endpoint.ts';
import { MAX_REQUESTS } from './network.ts';

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
    example_action: Type.Unsafe<Json>({ description: 'An action that the service accepts.' }),
    ...wordLists,
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
    title: Type.Optional(about.title),
    description: about.description,
    tags: about.tags,
    instruction: Type.Optional(task.instruction),
    max_episode_steps: task.max_episode_steps,
    action_tool: name('Tool that a text action calls; without it an action is `{"name": …, "input": {…}}`.'),
    action_field: name('Argument of that tool that takes the text.'),
    example_action: Type.Unsafe<Json>({ description: 'An action that the service accepts.' }),
    ...wordLists,
    seed: flag(true, 'The same task and calls give the same episode. If false, a seed is refused.'),
  },
  { title: 'OrsDefinition', description: 'A service that speaks the Open Reward Standard.' },
);
export type OrsDefinition = Static<typeof OrsDefinition>;

export type RemoteDefinition = WebhookDefinition | RagenDefinition | OpenEnvDefinition | OrsDefinition;

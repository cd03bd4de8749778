import type { JsonObject } from '../../../shared/json.ts';
import type { EnvironmentDocument } from '../../operations/schemas/environment.ts';
import type { ActionForm } from './messages.ts';

/** Protocol version; OpenEnv's validator derives the profile `openenv-http/1.x` from it. */
const PROTOCOL_VERSION = '1.0.0';

/** Reply to `GET /metadata`. */
export function metadataOf(environment: EnvironmentDocument): JsonObject {
  const { env_id: id, title, description, instruction } = environment;
  return {
    name: id,
    description: instruction,
    readme_content: `# ${title}\n\n${description}`,
    version: id.slice(id.lastIndexOf('-v') + 2),
    author: null,
    documentation_url: null,
  };
}

const ANY_OBJECT: JsonObject = { type: 'object', additionalProperties: true };

const OBSERVATION: JsonObject = {
  title: 'Observation',
  type: 'object',
  properties: {
    text: { type: 'string', description: 'What the player sees.' },
    done: { type: 'boolean', default: false, description: 'Whether the episode has ended' },
    reward: { type: 'number', default: 0, description: 'Reward of the last action' },
    metadata: { ...ANY_OBJECT, description: 'Of a step: `terminated`, `truncated`, `step`, `info`' },
  },
  required: ['text'],
};

const STATE: JsonObject = {
  title: 'State',
  type: 'object',
  properties: {
    episode_id: { anyOf: [{ type: 'string' }, { type: 'null' }], default: null },
    step_count: { type: 'integer', minimum: 0, default: 0 },
    session_id: { type: 'string' },
    env_id: { type: 'string' },
    seed: { anyOf: [{ type: 'integer' }, { type: 'null' }] },
    return: { type: 'number' },
    terminated: { type: 'boolean' },
    truncated: { type: 'boolean' },
    structured: { description: 'The observation as plain JSON' },
  },
};

/** Reply to `GET /schema`. */
export function schemasOf({ schema }: ActionForm): JsonObject {
  return { action: schema, observation: OBSERVATION, state: STATE };
}

const content = (schema: JsonObject): JsonObject => ({ 'application/json': { schema } });

const answer = (schema: JsonObject): JsonObject => ({
  200: { description: 'Successful Response', content: content(schema) },
  422: { description: 'Validation Error', content: content(INVALID) },
});

const INVALID: JsonObject = {
  type: 'object',
  properties: {
    detail: {
      type: 'array',
      items: {
        type: 'object',
        required: ['type', 'loc', 'msg'],
        properties: {
          type: { type: 'string' },
          loc: { type: 'array', items: { anyOf: [{ type: 'string' }, { type: 'integer' }] } },
          msg: { type: 'string' },
        },
      },
    },
  },
};

const REPLY: JsonObject = {
  type: 'object',
  required: ['observation'],
  properties: {
    observation: ANY_OBJECT,
    reward: { type: 'number' },
    done: { type: 'boolean' },
    metadata: ANY_OBJECT,
  },
};

const RESET: JsonObject = {
  type: 'object',
  description: 'Other fields are reset options of the environment.',
  properties: {
    seed: { anyOf: [{ type: 'integer', minimum: 0 }, { type: 'null' }] },
    episode_id: { anyOf: [{ type: 'string', maxLength: 255 }, { type: 'null' }] },
  },
  additionalProperties: true,
};

const SESSION_PARAMETER: JsonObject = {
  name: 'X-Session-Id',
  in: 'header',
  required: false,
  description:
    'A name for the session, or the id of one. Without it the cookie of the last reset names the session; without either a reset opens a new one.',
  schema: { type: 'string' },
};

const get = (
  operationId: string,
  summary: string,
  schema: JsonObject,
  more: JsonObject = {},
): JsonObject => ({
  get: {
    operationId,
    summary,
    ...more,
    responses: { 200: { description: summary, content: content(schema) } },
  },
});

/**
 * The OpenAPI document of one environment's routes.
 * @param path of the routes, with the environment id encoded
 */
export function openApiOf(
  environment: EnvironmentDocument,
  { schema }: ActionForm,
  path: string,
): JsonObject {
  const session = { parameters: [SESSION_PARAMETER] };
  const step: JsonObject = {
    type: 'object',
    required: ['action'],
    properties: {
      action: schema,
      timeout_s: { anyOf: [{ type: 'number', exclusiveMinimum: 0 }, { type: 'null' }] },
      request_id: { anyOf: [{ type: 'string' }, { type: 'null' }] },
    },
    additionalProperties: false,
  };
  return {
    openapi: '3.1.0',
    info: { title: environment.title, version: PROTOCOL_VERSION, description: environment.description },
    servers: [{ url: path }],
    paths: {
      '/reset': {
        post: {
          operationId: 'reset',
          summary: 'Begin a new episode',
          ...session,
          requestBody: { required: false, content: content(RESET) },
          responses: answer(REPLY),
        },
      },
      '/step': {
        post: {
          operationId: 'step',
          summary: 'Take an action',
          ...session,
          requestBody: { required: true, content: content(step) },
          responses: answer(REPLY),
        },
      },
      '/state': get('state', 'Where the episode stands', STATE, session),
      '/metadata': get('metadata', 'Name and description', ANY_OBJECT),
      '/schema': get('schema', 'Schemas of actions, observations and state', ANY_OBJECT),
      '/health': get('health', 'Whether the server takes requests', ANY_OBJECT),
      '/mcp': {
        post: {
          operationId: 'mcp',
          summary:
            'JSON-RPC: initialize, ping, tools/list, tools/call, openenv/session/create, openenv/session/close',
          requestBody: { required: true, content: content(ANY_OBJECT) },
          responses: {
            200: { description: 'A JSON-RPC reply', content: content(ANY_OBJECT) },
            202: { description: 'A notification was taken' },
          },
        },
      },
    },
  };
}

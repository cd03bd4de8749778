import { readFileSync } from 'node:fs';
import type { JsonObject } from '../../../shared/json.ts';
import type { EnvironmentDocument } from '../../operations/schemas/fields.ts';
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

/** Schemas of the protocol's messages, the same for every environment. */
const SCHEMAS: {
  readonly [name in
    | 'anyObject'
    | 'observation'
    | 'state'
    | 'invalid'
    | 'reply'
    | 'reset'
    | 'sessionParameter']: JsonObject;
} = JSON.parse(readFileSync(new URL('./schemas.json', import.meta.url), 'utf8'));

/** Reply to `GET /schema`. */
export function schemasOf({ schema }: ActionForm): JsonObject {
  return { action: schema, observation: SCHEMAS.observation, state: SCHEMAS.state };
}

const content = (schema: JsonObject): JsonObject => ({ 'application/json': { schema } });

const answer = (schema: JsonObject): JsonObject => ({
  200: { description: 'Successful Response', content: content(schema) },
  422: { description: 'Validation Error', content: content(SCHEMAS.invalid) },
});

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
  const session = { parameters: [SCHEMAS.sessionParameter] };
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
          requestBody: { required: false, content: content(SCHEMAS.reset) },
          responses: answer(SCHEMAS.reply),
        },
      },
      '/step': {
        post: {
          operationId: 'step',
          summary: 'Take an action',
          ...session,
          requestBody: { required: true, content: content(step) },
          responses: answer(SCHEMAS.reply),
        },
      },
      '/state': get('state', 'Where the episode stands', SCHEMAS.state, session),
      '/metadata': get('metadata', 'Name and description', SCHEMAS.anyObject),
      '/schema': get('schema', 'Schemas of actions, observations and state', SCHEMAS.anyObject),
      '/health': get('health', 'Whether the server takes requests', SCHEMAS.anyObject),
      '/mcp': {
        post: {
          operationId: 'mcp',
          summary:
            'JSON-RPC: initialize, ping, tools/list, tools/call, openenv/session/create, openenv/session/close',
          requestBody: { required: true, content: content(SCHEMAS.anyObject) },
          responses: {
            200: { description: 'A JSON-RPC reply', content: content(SCHEMAS.anyObject) },
            202: { description: 'A notification was taken' },
          },
        },
      },
    },
  };
}

import type { TObject, TSchema } from 'typebox';
import { BATCH_PROBLEMS, documentedProblems } from '../../operations/dispatch/documented-problems.ts';
import type { Operation } from '../../operations/operation.ts';
import { REQUEST_KEY } from '../../operations/schemas/fields.ts';
import { ProblemSchema } from '../../operations/schemas/problem.ts';
import { SessionCard } from '../../operations/schemas/trajectory.ts';
import { OPERATIONS } from '../../operations/table.ts';
import type { ProblemCode } from '../../problems.ts';
import { WATCH_PROPERTIES } from '../websocket/session-feed.ts';

/** Version of the interface, not of the package: it changes when a client could notice. */
export const API_VERSION = '1.0.0';

type Document = { [key: string]: unknown };

const DESCRIPTION = `Environments for reinforcement learning over HTTP.

Every operation has a REST route, works as an item of \`POST /v1/batch\`, and as a frame on the WebSocket \`/v1/ws\`
(subprotocol \`ragen.json\`, or \`ragen.msgpack\` for the same in MessagePack): \`{"id": 7, "op": "step", "session_id": "…", "action": 1}\` is answered by a \`ReplyFrame\`
with the same \`id\`; replies may come in any order. \`{"id": 8, "op": "ping"}\` and \`{"id": 9, "op": "batch", "items": […]}\`
work there too. \`{"id": 10, "op": "watch"}\` is answered by \`Watching\` at once and, under the same \`id\`, whenever a session
changes, at most twice a second, until \`{"id": 11, "op": "unwatch"}\`. A frame may carry its own \`traceparent\`, as requests have it in their header.`;

/** The OpenAPI 3.1 document of the whole server, made from the operations table. */
export function openApiDocument(): Document {
  const components = new Map<string, Document>();
  const emit = (schema: unknown): unknown => lift(schema, components);
  const paths: { [path: string]: Document } = {};
  for (const operation of OPERATIONS) {
    paths[operation.path] = {
      ...paths[operation.path],
      [operation.method.toLowerCase()]: routeDocument(operation, emit),
    };
  }
  paths['/v1/batch'] = { post: batchDocument() };
  emit(ProblemSchema);
  addFrames(components, emit);
  return {
    openapi: '3.1.0',
    info: { title: 'ragen environment server', version: API_VERSION, description: DESCRIPTION },
    servers: [
      { url: '/', description: 'The server that the document comes from.' },
      { url: 'http://127.0.0.1:8080', description: 'A server on this machine with its default port.' },
    ],
    tags: [
      { name: 'sessions', description: 'Episodes being played.' },
      { name: 'environments', description: 'What can be played.' },
    ],
    security: [{}, { bearer: [] }],
    paths,
    components: {
      schemas: Object.fromEntries([...components].sort(([a], [b]) => (a < b ? -1 : 1))),
      securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } },
    },
  };
}

/** Moves titled schemas into the components and leaves references in their place. */
function lift(schema: unknown, components: Map<string, Document>): unknown {
  if (Array.isArray(schema)) return schema.map(item => lift(item, components));
  if (typeof schema !== 'object' || schema === null) return schema;
  const copy: Document = {};
  for (const [key, value] of Object.entries(schema)) {
    if (key !== 'default' && key !== 'title') copy[key] = lift(value, components);
    else copy[key] = value;
  }
  if (typeof copy.title !== 'string') return copy;
  const { title, ...rest } = copy;
  components.set(title as string, rest);
  return reference(title as string);
}

const reference = (name: string): Document => ({ $ref: `#/components/schemas/${name}` });

const jsonContent = (schema: unknown, examples?: object): Document => ({
  'application/json': { schema, ...(examples && { examples }) },
});

const { description: keyDescription, ...keyLimits } = REQUEST_KEY;
const IDEMPOTENCY_KEY = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description: keyDescription,
  schema: { type: 'string', ...keyLimits },
};

/** Any answer that is no success; docs/reference/errors.md says what each code means and its status. */
function problemResponse(codes: readonly ProblemCode[]): Document {
  const schema = {
    allOf: [reference('Problem'), { type: 'object', properties: { code: { type: 'string', enum: codes } } }],
  };
  return {
    description: `A problem document; \`code\` is one of ${codes.map(code => `\`${code}\``).join(', ')}.`,
    content: { 'application/problem+json': { schema } },
  };
}

function routeDocument(operation: Operation, emit: (schema: unknown) => unknown): Document {
  const parameters = [
    ...parametersOf(operation.params, 'path', emit),
    ...parametersOf(operation.query, 'query', emit),
  ];
  if (operation.keyed) {
    parameters.push(IDEMPOTENCY_KEY);
  }
  const hasBody = Object.keys(operation.body.properties).length > 0;
  return {
    operationId: operation.name,
    tags: [operation.tag],
    summary: operation.summary,
    ...(operation.description && { description: operation.description }),
    ...(parameters.length > 0 && { parameters }),
    ...(hasBody && {
      requestBody: {
        required: (operation.body.required ?? []).length > 0,
        content: jsonContent(
          emit({
            ...operation.body,
            properties: { ...operation.body.properties, ...operation.documented },
            title: `${pascal(operation.name)}Body`,
          }),
          operation.examples,
        ),
      },
    }),
    responses: {
      [operation.status]: success(operation, emit),
      default: problemResponse(documentedProblems(operation)),
    },
  };
}

function success(operation: Operation, emit: (schema: unknown) => unknown): Document {
  const result = emit(operation.result);
  if (operation.status === 204) return { description: 'Done.' };
  const other = (operation.mediaTypes ?? []).map(type => [type, { schema: { type: 'string' } }] as const);
  const replacesJson = operation.mediaTypes?.includes('application/jsonl');
  return {
    description: operation.summary,
    content: {
      ...(replacesJson ? {} : jsonContent(operation.representedJson ?? result)),
      ...Object.fromEntries(other),
    },
  };
}

function parametersOf(object: TObject, place: string, emit: (schema: unknown) => unknown): Document[] {
  const required = new Set(object.required ?? []);
  return Object.entries(object.properties as { [name: string]: TSchema }).map(([name, schema]) => {
    const { description, ...rest } = emit(schema) as Document;
    return {
      name,
      in: place,
      required: required.has(name),
      ...(description !== undefined && { description }),
      schema: rest,
    };
  });
}

function batchDocument(): Document {
  return {
    operationId: 'batch',
    tags: ['sessions'],
    summary: 'Many operations in one request',
    description:
      'Results come in order, each a result or a problem; a failed item does not stop the others. Items for one session run in their order. `Idempotency-Key` stands for a request key of every item that has none.',
    parameters: [IDEMPOTENCY_KEY],
    requestBody: { required: true, content: jsonContent(reference('BatchBody')) },
    responses: {
      200: { description: 'A reply for every item.', content: jsonContent(reference('BatchResult')) },
      default: problemResponse(BATCH_PROBLEMS),
    },
  };
}

/**
 * Batch items and WebSocket frames: an operation's parameters, query and body in one flat object. Each is a closed schema
 * with a name, as generators of clients make nothing of `unevaluatedProperties`.
 */
function addFrames(components: Map<string, Document>, emit: (schema: unknown) => unknown): void {
  const id = { type: ['string', 'integer'], description: 'The caller’s name for the frame.' };
  const ofEveryFrame = {
    id,
    traceparent: {
      type: 'string',
      description:
        'The trace that the frame belongs to, as W3C Trace Context writes it; that of the socket when absent.',
    },
  };
  const frame = (properties: Document, required: readonly string[]) => ({
    type: 'object',
    required: ['id', 'op', ...required],
    properties: { ...ofEveryFrame, ...properties },
    additionalProperties: false,
  });
  const items: string[] = [];
  const frames: string[] = [];
  for (const operation of OPERATIONS) {
    const { name, keyed, documented } = operation;
    const parts = [operation.params, operation.query, operation.body];
    const required = parts.flatMap(part => part.required ?? []);
    const properties = emit({
      op: { type: 'string', const: name },
      ...Object.assign({}, ...parts.map(part => part.properties), documented),
      ...(keyed && { request_key: { type: 'string', ...REQUEST_KEY } }),
    }) as Document;
    const item = { type: 'object', required: ['op', ...required], properties, additionalProperties: false };
    components.set(`${pascal(name)}Item`, item);
    components.set(`${pascal(name)}Frame`, frame(properties, required));
    items.push(`${pascal(name)}Item`);
    frames.push(`${pascal(name)}Frame`);
  }
  const results = [...new Set(OPERATIONS.map(operation => operation.result))].map(emit);
  const wait = {
    type: 'integer',
    minimum: 1,
    description: 'Answer when this many items are ready; the rest is named in `pending` and goes on.',
  };
  const batchProperties = {
    items: { type: 'array', items: reference('BatchItem'), minItems: 1 },
    wait,
  };
  const failure = { type: 'object', required: ['ok', 'error'] };
  const added: { [name: string]: Document } = {
    BatchItem: {
      description: 'Parameters, query and body of an operation in one flat object, `op` names it.',
      oneOf: items.map(reference),
    },
    BatchBody: {
      type: 'object',
      required: ['items'],
      properties: batchProperties,
      additionalProperties: false,
    },
    Result: { anyOf: results },
    BatchReply: {
      oneOf: [
        {
          type: 'object',
          required: ['ok', 'result'],
          properties: { ok: { type: 'boolean', const: true }, result: reference('Result') },
        },
        { ...failure, properties: { ok: { type: 'boolean', const: false }, error: reference('Problem') } },
        {
          type: 'object',
          required: ['ok', 'pending'],
          properties: {
            ok: { type: 'boolean', const: false },
            pending: { type: 'boolean', const: true },
          },
        },
      ],
    },
    BatchResult: {
      type: 'object',
      required: ['results'],
      properties: {
        results: { type: 'array', items: reference('BatchReply') },
        pending: {
          type: 'array',
          items: { type: 'integer' },
          description: 'Positions of the items that were not ready; present with `wait`.',
        },
      },
    },
    BatchFrame: frame(
      {
        op: { type: 'string', const: 'batch' },
        ...batchProperties,
        request_key: { type: 'string', ...REQUEST_KEY },
      },
      ['items'],
    ),
    PingFrame: frame({ op: { type: 'string', const: 'ping' } }, []),
    Frame: {
      description: 'What a client sends on the WebSocket.',
      oneOf: [...frames, 'BatchFrame', 'PingFrame', 'WatchFrame', 'UnwatchFrame'].map(reference),
    },
    ReplyFrame: {
      description: 'What the server answers; `id` is null where the frame had none that could be read.',
      oneOf: [
        {
          type: 'object',
          required: ['id', 'ok', 'result'],
          properties: {
            id,
            ok: { type: 'boolean', const: true },
            result: {
              anyOf: ['Result', 'BatchResult', 'Pong', 'Watching', 'NotWatching'].map(reference),
            },
          },
        },
        {
          ...failure,
          required: ['id', 'ok', 'error'],
          properties: {
            id: { ...id, type: ['string', 'integer', 'null'] },
            ok: { type: 'boolean', const: false },
            error: reference('Problem'),
          },
        },
      ],
    },
    ...watchFrames(frame, emit),
    Pong: {
      type: 'object',
      required: ['pong'],
      properties: { pong: { type: 'boolean', const: true } },
    },
  };
  for (const [name, schema] of Object.entries(added)) components.set(name, schema);
}

/** What the WebSocket operations `watch` and `unwatch` take and answer. */
function watchFrames(
  frame: (properties: Document, required: readonly string[]) => Document,
  emit: (schema: unknown) => unknown,
): { [name: string]: Document } {
  return {
    WatchFrame: frame(emit(WATCH_PROPERTIES) as Document, []),
    UnwatchFrame: frame({ op: { type: 'string', const: 'unwatch' } }, []),
    Watching: {
      description:
        'Sessions as they stand. The first answer has all that are to be seen, later ones what changed.',
      type: 'object',
      required: ['sessions'],
      properties: {
        sessions: { type: 'array', items: emit(SessionCard) },
        order: {
          type: 'array',
          items: { type: 'string' },
          description:
            'Ids of all sessions that are to be seen, newest first, the ended ones last; absent where they are as before.',
        },
      },
    },
    NotWatching: {
      type: 'object',
      required: ['watching'],
      properties: { watching: { type: 'boolean', const: false } },
    },
  };
}

function pascal(name: string): string {
  return name
    .split('_')
    .map(word => word[0].toUpperCase() + word.slice(1))
    .join('');
}

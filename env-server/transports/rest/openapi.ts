import type { TObject, TSchema } from 'typebox';
import { Type } from '../../../shared/schema/type.ts';
import type { Operation } from '../../operations/operation.ts';
import { BATCH_PROBLEMS, documentedProblems } from '../../operations/problems.ts';
import { REQUEST_KEY } from '../../operations/schemas/fields.ts';
import { SessionCard } from '../../operations/schemas/session.ts';
import { OPERATIONS } from '../../operations/table.ts';
import { PROBLEMS, type ProblemCode } from '../../problems.ts';
import { WATCH_PROPERTIES } from '../websocket/session-feed.ts';

/** Version of the interface, not of the package: it changes when a client could notice. */
const API_VERSION = '1.0.0';

const DESCRIPTION = `Environments for reinforcement learning over HTTP.

Every operation has a REST route, works as an item of \`POST /v1/batch\`, and as a frame on the WebSocket \`/v1/ws\`
(subprotocol \`ragen.json\`, or \`ragen.msgpack\` for the same in MessagePack): \`{"id": 7, "op": "step", "session_id": "…", "action": 1}\` is answered by a \`ReplyFrame\`
with the same \`id\`; replies may come in any order. \`{"id": 8, "op": "ping"}\` and \`{"id": 9, "op": "batch", "items": […]}\`
work there too. \`{"id": 10, "op": "watch"}\` is answered by \`Watching\` at once and, under the same \`id\`, whenever a session
changes, at most twice a second, until \`{"id": 11, "op": "unwatch"}\`. A frame may carry its own \`traceparent\`, as requests have it in their header.`;

/** The OpenAPI 3.1 document of the whole server, made from the operations table. */
export function openApiDocument(): Document {
  const components = new Map<string, Document>();
  const emit: Emit = schema => lift(schema, components);
  const paths: { [path: string]: Document } = {};
  for (const operation of OPERATIONS) {
    paths[operation.path] = {
      ...paths[operation.path],
      [operation.method.toLowerCase()]: routeDocument(operation, emit),
    };
  }
  paths['/v1/batch'] = { post: batchDocument() };
  emit(ProblemSchema);
  for (const [name, schema] of Object.entries(frameSchemas(emit))) components.set(name, schema);
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

/** Any error reply; docs/reference/errors.md explains each code and its status. */
function problemResponse(codes: readonly ProblemCode[]): Document {
  const schema = {
    allOf: [reference('Problem'), { type: 'object', properties: { code: { type: 'string', enum: codes } } }],
  };
  return {
    description: `A problem document; \`code\` is one of ${codes.map(code => `\`${code}\``).join(', ')}.`,
    content: { 'application/problem+json': { schema } },
  };
}

function routeDocument(operation: Operation, emit: Emit): Document {
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

function success(operation: Operation, emit: Emit): Document {
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

function parametersOf(object: TObject, place: string, emit: Emit): Document[] {
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
      'Results come in order, each a result or a problem; a failed item does not stop the others. Items for one session run in their order. `Idempotency-Key` serves as the request key of every item that has none.',
    parameters: [IDEMPOTENCY_KEY],
    requestBody: { required: true, content: jsonContent(reference('BatchBody')) },
    responses: {
      200: { description: 'A reply for every item.', content: jsonContent(reference('BatchResult')) },
      default: problemResponse(BATCH_PROBLEMS),
    },
  };
}

const ProblemSchema = Type.Object(
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

/** A part of the OpenAPI document. */
type Document = { [key: string]: unknown };

/** Moves titled parts of a schema to the components; returns the schema with references to them. */
type Emit = (schema: unknown) => unknown;

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

/** `create_session` as `CreateSession`. */
function pascal(name: string): string {
  return name
    .split('_')
    .map(word => word[0].toUpperCase() + word.slice(1))
    .join('');
}

interface Schemas {
  [name: string]: Document;
}

const ID = { type: ['string', 'integer'], description: 'Id of the frame, chosen by the caller.' };
const OF_EVERY_FRAME = {
  id: ID,
  traceparent: {
    type: 'string',
    description:
      'The trace that the frame belongs to, as W3C Trace Context writes it; that of the socket when absent.',
  },
};
const BATCH_PROPERTIES = {
  items: { type: 'array', items: reference('BatchItem'), minItems: 1 },
  wait: {
    type: 'integer',
    minimum: 1,
    description: 'Answer when this many items are ready; `pending` names the others, which continue.',
  },
};

/** Schema of an object that requires all of its properties. */
const whole = (properties: Document): Document => ({
  type: 'object',
  required: Object.keys(properties),
  properties,
});
const flag = (value: boolean): Document => ({ type: 'boolean', const: value });
const op = (name: string): Document => ({ type: 'string', const: name });

/**
 * Batch items and WebSocket frames by name: an operation's parameters, query and body in one flat object. Each is a closed
 * schema with a name, because client generators ignore `unevaluatedProperties`.
 */
function frameSchemas(emit: Emit): Schemas {
  const results = [...new Set(OPERATIONS.map(operation => operation.result))].map(emit);
  const names = OPERATIONS.map(({ name }) => pascal(name));
  return {
    ...operationFrames(emit),
    ...batchSchemas(names.map(name => `${name}Item`)),
    Result: { anyOf: results },
    PingFrame: frame({ op: op('ping') }, []),
    Pong: whole({ pong: flag(true) }),
    ...watchFrames(emit),
    Frame: {
      description: 'A client’s message on the WebSocket.',
      oneOf: [
        ...names.map(name => `${name}Frame`),
        'BatchFrame',
        'PingFrame',
        'WatchFrame',
        'UnwatchFrame',
      ].map(reference),
    },
    ReplyFrame: replyFrame(),
  };
}

function frame(properties: Document, required: readonly string[]): Document {
  return {
    type: 'object',
    required: ['id', 'op', ...required],
    properties: { ...OF_EVERY_FRAME, ...properties },
    additionalProperties: false,
  };
}

/** An item and a frame for every operation. */
function operationFrames(emit: Emit): Schemas {
  const schemas: Schemas = {};
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
    schemas[`${pascal(name)}Item`] = item;
    schemas[`${pascal(name)}Frame`] = frame(properties, required);
  }
  return schemas;
}

function batchSchemas(items: readonly string[]): Schemas {
  return {
    BatchItem: {
      description: 'Parameters, query and body of an operation in one flat object, `op` names it.',
      oneOf: items.map(reference),
    },
    BatchBody: {
      type: 'object',
      required: ['items'],
      properties: BATCH_PROPERTIES,
      additionalProperties: false,
    },
    BatchFrame: frame(
      {
        op: op('batch'),
        ...BATCH_PROPERTIES,
        request_key: { type: 'string', ...REQUEST_KEY },
      },
      ['items'],
    ),
    BatchReply: {
      oneOf: [
        whole({ ok: flag(true), result: reference('Result') }),
        whole({ ok: flag(false), error: reference('Problem') }),
        whole({ ok: flag(false), pending: flag(true) }),
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
  };
}

function replyFrame(): Document {
  return {
    description: 'The server’s reply; `id` is null if the frame had no readable one.',
    oneOf: [
      whole({
        id: ID,
        ok: flag(true),
        result: { anyOf: ['Result', 'BatchResult', 'Pong', 'Watching', 'NotWatching'].map(reference) },
      }),
      whole({
        id: { ...ID, type: ['string', 'integer', 'null'] },
        ok: flag(false),
        error: reference('Problem'),
      }),
    ],
  };
}

/** Schemas of the requests and replies of the WebSocket operations `watch` and `unwatch`. */
function watchFrames(emit: Emit): Schemas {
  return {
    WatchFrame: frame(emit(WATCH_PROPERTIES) as Document, []),
    UnwatchFrame: frame({ op: op('unwatch') }, []),
    Watching: {
      description: 'Current sessions. The first reply has all visible ones, later replies have the changes.',
      type: 'object',
      required: ['sessions'],
      properties: {
        sessions: { type: 'array', items: emit(SessionCard) },
        order: {
          type: 'array',
          items: { type: 'string' },
          description: 'Ids of all visible sessions, newest first, ended ones last; absent if unchanged.',
        },
      },
    },
    NotWatching: whole({ watching: flag(false) }),
  };
}

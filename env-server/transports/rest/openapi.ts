import type { TObject, TSchema } from 'typebox';
import type { Operation } from '../../operations/operation.ts';
import { BATCH_PROBLEMS, documentedProblems } from '../../operations/problems.ts';
import { REQUEST_KEY } from '../../operations/schemas/fields.ts';
import { OPERATIONS } from '../../operations/table.ts';
import type { ProblemCode } from '../../problems.ts';
import {
  type Document,
  type Emit,
  frameSchemas,
  lift,
  ProblemSchema,
  pascal,
  reference,
} from './openapi-frames.ts';

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

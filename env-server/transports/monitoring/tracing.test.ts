import { once } from 'node:events';
import { createServer } from 'node:http';
import { parse } from 'protobufjs';
import t, { type Test } from 'tap';
import { WebSocket } from 'ws';
import { listenLocally } from '../../../test/local-server.test-data.ts';
import { runServer, startServer } from '../../../test/process.test-data.ts';
import { readTracingSettings } from './trace-requests.ts';

t.setTimeout(900_000);

/** The part of OTLP (https://github.com/open-telemetry/opentelemetry-proto) that is looked at here. */
const { root } = parse(`
  syntax = "proto3";
  message Request { repeated ResourceSpans resource_spans = 1; }
  message ResourceSpans { Resource resource = 1; repeated ScopeSpans scope_spans = 2; }
  message Resource { repeated KeyValue attributes = 1; }
  message ScopeSpans { repeated Span spans = 2; }
  message Span {
    bytes trace_id = 1; bytes span_id = 2; bytes parent_span_id = 4; string name = 5; int32 kind = 6;
    repeated KeyValue attributes = 9; Status status = 15;
  }
  message KeyValue { string key = 1; Value value = 2; }
  message Value { oneof value { string string_value = 1; bool bool_value = 2; int64 int_value = 3; } }
  message Status { string message = 2; int32 code = 3; }
`);
const RequestMessage = root.lookupType('Request');

interface KeyValue {
  readonly key: string;
  readonly value: { readonly stringValue?: string; readonly intValue?: string };
}
interface Decoded {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly KeyValue[] };
    readonly scopeSpans: readonly {
      readonly spans: readonly {
        readonly traceId: string;
        readonly spanId: string;
        readonly parentSpanId?: string;
        readonly name: string;
        readonly kind: number;
        readonly attributes?: readonly KeyValue[];
        readonly status?: { readonly code?: number };
      }[];
    }[];
  }[];
}

interface Span {
  readonly service: string;
  readonly trace: string;
  readonly id: string;
  readonly parent: string;
  readonly name: string;
  readonly kind: number;
  readonly failed: boolean;
  readonly attributes: { readonly [key: string]: string };
}

const hex = (base64: string | undefined) => Buffer.from(base64 ?? '', 'base64').toString('hex');
const attributesOf = (list: readonly KeyValue[] = []) =>
  Object.fromEntries(list.map(({ key, value }) => [key, value.stringValue ?? value.intValue ?? '']));

function spansOf(body: Buffer): Span[] {
  const message = RequestMessage.toObject(RequestMessage.decode(body), {
    bytes: String,
    longs: String,
  }) as Decoded;
  return message.resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map(span => ({
        service: attributesOf(resource.attributes)['service.name'],
        trace: hex(span.traceId),
        id: hex(span.spanId),
        parent: hex(span.parentSpanId),
        name: span.name,
        kind: span.kind,
        failed: span.status?.code === 2,
        attributes: attributesOf(span.attributes),
      })),
    ),
  );
}

/** A collector that takes OTLP over HTTP. */
async function collector(t: Test) {
  const spans: Span[] = [];
  const paths = new Set<string | undefined>();
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    paths.add(request.url);
    spans.push(...spansOf(Buffer.concat(chunks)));
    response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end();
  });
  const { url: endpoint } = await listenLocally(t, server);
  const find = async (wanted: (span: Span) => boolean): Promise<Span> => {
    for (;;) {
      const found = spans.find(wanted);
      if (found) return found;
      await new Promise(resolve => setTimeout(resolve, 20));
    }
  };
  return { endpoint, spans, paths, find };
}

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const traceparent = `00-${TRACE}-${PARENT}-01`;

t.test('requests and their operations become spans below the trace of the client', async t => {
  const { endpoint, paths, find, spans } = await collector(t);
  const { ask, origin, end } = await startServer(t, [], {
    OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
    OTEL_SERVICE_NAME: 'lake',
    OTEL_BSP_SCHEDULE_DELAY: '50',
  });
  const { body } = await ask('POST', '/v1/sessions', { env_id: 'FrozenLake-v0' }, { traceparent });
  const server = await find(({ name }) => name === 'POST /v1/sessions');
  t.match(server, {
    service: 'lake',
    trace: TRACE,
    parent: PARENT,
    kind: 2,
    failed: false,
    attributes: { 'http.route': '/v1/sessions', 'http.response.status_code': '201' },
  });
  t.match(await find(({ name }) => name === 'create'), {
    trace: TRACE,
    parent: server.id,
    attributes: { 'ragen.env_id': 'FrozenLake-v0' },
  });
  t.same([...paths], ['/v1/traces']);

  const session_id = String(body.session_id);
  await ask('POST', '/v1/batch', { items: [{ op: 'step', session_id, action: {} }] });
  const batch = await find(({ name }) => name === 'POST /v1/batch');
  t.match(batch, { parent: '' }, 'without traceparent a new trace');
  const refused = await find(({ attributes }) => attributes['ragen.problem'] === 'invalid_action');
  t.match(
    refused,
    { parent: batch.id, trace: batch.trace, name: 'step', failed: false },
    'a mistake of the client is not an error',
  );

  const unknown = await ask('GET', '/v1/sessions/unknown');
  const span = await find(({ name }) => name === 'GET /v1/sessions/:session_id');
  t.equal(unknown.body.trace_id, span.trace, 'a problem names the trace');
  t.match(await find(({ attributes }) => attributes['ragen.problem'] === 'unknown_session'), {
    trace: span.trace,
  });

  const socket = new WebSocket(`${origin.replace('http', 'ws')}/v1/ws`, 'ragen.json', {
    headers: { traceparent },
  });
  t.teardown(() => socket.terminate());
  await once(socket, 'open');
  socket.send(JSON.stringify({ id: 1, op: 'render', session_id: 'unknown' }));
  const [reply] = await once(socket, 'message');
  t.match(JSON.parse(String(reply)), { error: { trace_id: TRACE } });
  t.match(await find(({ name }) => name === 'render'), {
    trace: TRACE,
    parent: (await find(({ name }) => name === 'GET /v1/ws')).id,
  });
  const own = { trace: 'a'.repeat(32), parent: 'b'.repeat(16) };
  const frame = { id: 2, traceparent: `00-${own.trace}-${own.parent}-01` };
  const items = [{ op: 'check', env_id: 'Nobody-v0' }];
  for (const asked of [
    { op: 'snapshot', session_id: 'unknown' },
    { op: 'batch', items },
  ]) {
    socket.send(JSON.stringify({ ...frame, ...asked }));
    const [reply] = await once(socket, 'message');
    t.match(String(reply), `"trace_id":"${own.trace}"`);
  }
  t.match(await find(({ name }) => name === 'snapshot'), own, 'a frame may belong to another trace');
  t.match(await find(({ name }) => name === 'check'), own, 'and so may what a batch holds');
  await ask('GET', '/v1/envs');
  await end('SIGTERM');
  t.ok(
    spans.some(({ name }) => name === 'list_environments'),
    'the last spans leave before the process does',
  );
});

t.test('a collector that is down harms nobody; an unsampled trace is not sent', async t => {
  const { endpoint, spans } = await collector(t);
  const down = await startServer(t, [], {
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9',
    OTEL_BSP_SCHEDULE_DELAY: '20',
  });
  for (let i = 0; i < 5; i++) t.equal((await down.ask('GET', '/v1/envs')).status, 200);
  t.same(await down.end('SIGTERM'), { code: 0, signal: null });
  const quiet = await startServer(t, [], {
    OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
    OTEL_TRACES_SAMPLER: 'always_off',
  });
  const { body } = await quiet.ask('GET', '/v1/sessions/unknown', undefined, { traceparent });
  t.equal(body.trace_id, TRACE);
  await quiet.end('SIGTERM');
  t.same(spans, []);
});

t.test('without the variables nothing that makes spans is loaded', async t => {
  const hook = `import { registerHooks } from 'node:module';
    registerHooks({ load(url, context, next) {
      if (url.includes('@opentelemetry/sdk-trace')) console.error('LOADED ' + url);
      return next(url, context);
    } });`;
  const loads = async (env: { [name: string]: string }) => {
    const child = runServer(t, ['--port', '0'], {
      NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(hook)}`,
      ...env,
    });
    let text = '';
    child.stderr!.on('data', chunk => {
      text += chunk;
    });
    await once(child.stdout!, 'data');
    child.kill('SIGKILL');
    await once(child, 'close');
    return text.includes('LOADED');
  };
  t.equal(await loads({}), false);
  t.equal(await loads({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' }), true);
});

t.test('the variables say whether and how; what they cannot mean is named', async t => {
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://localhost:4318' };
  t.equal(readTracingSettings({}), undefined);
  t.equal(readTracingSettings({ ...endpoint, OTEL_SDK_DISABLED: 'true' }), undefined);
  t.equal(readTracingSettings({ ...endpoint, OTEL_TRACES_EXPORTER: 'none' }), undefined);
  t.match(readTracingSettings({ OTEL_TRACES_EXPORTER: 'otlp' }), {
    sampler: { name: 'parentbased_always_on', ratio: 1 },
  });
  t.match(
    readTracingSettings({
      ...endpoint,
      OTEL_TRACES_SAMPLER: 'traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0.25',
      OTEL_BSP_SCHEDULE_DELAY: '100',
      OTEL_BSP_MAX_QUEUE_SIZE: '10',
    }),
    { sampler: { name: 'traceidratio', ratio: 0.25 }, delayMs: 100, mostQueued: 10 },
  );
  for (const [variables, message] of [
    [{ OTEL_TRACES_EXPORTER: 'jaeger' }, /OTEL_TRACES_EXPORTER must be one of otlp, none, got "jaeger"/],
    [{ ...endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, /must be one of http\/protobuf, got "grpc"/],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'collector' }, /must be a URL such as/],
    [
      { ...endpoint, OTEL_TRACES_SAMPLER: 'some' },
      /OTEL_TRACES_SAMPLER must be one of parentbased_always_on/,
    ],
    [
      { ...endpoint, OTEL_TRACES_SAMPLER_ARG: '2' },
      /OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1, got "2"/,
    ],
  ] as const) {
    t.throws(() => readTracingSettings(variables), message);
  }
});

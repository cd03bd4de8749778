import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { Random } from '../../shared/random.ts';
import type { TestApp } from '../../test/app.test-data.ts';
import { fitting, spoilt } from '../../test/fuzz-values.test-data.ts';
import type { Schema } from '../../test/json-schema.test-data.ts';
import { dial, hostOf, listening } from '../../test/wire.test-data.ts';
import { PROBLEMS } from '../problems.ts';

/**
 * Requests that no client library would send. Schemathesis makes the well-formed ones from `openapi.json`
 * (`openapi/python/tests/test_contract.py`).
 */

const ANSWER_MS = 20_000;
const FRAMES = 400;
const SEEDS = [1, 2];
/** A stack frame, or a path of the machine. */
const INTERNALS = /\bat [^\n"]{1,300}\.[cm]?[jt]s:\d|node:internal|node_modules/;

const BODY = '{"env_id":"test/Counter-v0"}';
const HEAD = [
  'POST /v1/sessions HTTP/1.1',
  'Host: localhost',
  'Connection: close',
  'Content-Type: application/json',
];
const UPGRADE = ['GET /v1/ws HTTP/1.1', 'Host: localhost', 'Connection: Upgrade', 'Upgrade: websocket'];
const request = (lines: readonly string[], body = BODY) => `${lines.join('\r\n')}\r\n\r\n${body}`;
const withHeader = (...lines: readonly string[]) =>
  request([...HEAD, ...lines, `Content-Length: ${BODY.length}`]);
const withStart = (start: string) => request([start, ...HEAD.slice(1), `Content-Length: ${BODY.length}`]);

/** Bytes on one connection. `cut`: the client hangs up after them, so that no answer is owed. */
const MALFORMED: { readonly [name: string]: string | { readonly cut: string } } = {
  'half a request': { cut: withHeader().slice(0, 40) },
  'half a body': { cut: request([...HEAD, 'Content-Length: 100000']) },
  'more than it announces': `${withHeader()}{"left":"over"}`,
  'a negative length': request([...HEAD, 'Content-Length: -1']),
  'two lengths': withHeader('Content-Length: 3'),
  'a bad chunk': request([...HEAD, 'Transfer-Encoding: chunked'], `x${BODY}`),
  'an unknown coding': request([...HEAD, 'Transfer-Encoding: rot13']),
  'length and chunks': request([...HEAD, 'Content-Length: 4', 'Transfer-Encoding: chunked'], '0\r\n\r\n'),
  'no host': request([HEAD[0], ...HEAD.slice(2), `Content-Length: ${BODY.length}`]),
  'two hosts': withHeader('Host: y'),
  'a header of 100 kB': withHeader(`X-Large: ${'x'.repeat(100_000)}`),
  '3,000 headers': withHeader(...Array.from({ length: 3000 }, (_, i) => `X-${i}: 1`)),
  'a header without a colon': withHeader('Nonsense'),
  'a header with a control character': withHeader('X-A: \x01'),
  'a header with a space in its name': withHeader('X A: 1'),
  'a folded header': withHeader('X-A: 1\r\n 2'),
  'HTTP/2.0 in the start line': withStart('POST /v1/sessions HTTP/2.0'),
  'HTTP/9.9 in the start line': withStart('POST /v1/sessions HTTP/9.9'),
  'no version': withStart('POST /v1/sessions'),
  'no method': withStart('/v1/sessions HTTP/1.1'),
  'an unknown method': withStart('FROBNICATE /v1/sessions HTTP/1.1'),
  'a target that is not a path': withStart('POST x HTTP/1.1'),
  CONNECT: withStart('CONNECT x:80 HTTP/1.1'),
  'a space in the path': withStart('POST /v1/ sessions HTTP/1.1'),
  'letters beyond ASCII in the path': withStart('POST /v1/sessions/ü🧊 HTTP/1.1'),
  'a path of 70 kB': withStart(`POST /v1/sessions/${'x'.repeat(70_000)} HTTP/1.1`),
  'an expectation nobody knows': withHeader('Expect: the-inquisition'),
  'an upgrade to h2c': withHeader('Upgrade: h2c', 'HTTP2-Settings: x'),
  'an upgrade without a key': request(UPGRADE, ''),
  'an upgrade of an old version': request(
    [...UPGRADE, 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==', 'Sec-WebSocket-Version: 1'],
    '',
  ),
  'an upgrade of another route': request(['GET /v1/envs HTTP/1.1', ...UPGRADE.slice(1)], ''),
  'nested brackets instead of HTTP': `${'['.repeat(50)}1${']'.repeat(50)}`,
  'a TLS handshake': '\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n',
};

/** All bytes that come back on a connection until the server closes it. */
function exchange(app: TestApp, bytes: string, cut: boolean): Promise<string> {
  return new Promise((resolve, reject) => {
    const [host, port] = hostOf(app).split(':');
    const socket = connect({ host, port: Number(port) });
    let text = '';
    socket.setEncoding('latin1');
    socket.on('data', chunk => {
      text += chunk;
    });
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(text));
    socket.setTimeout(ANSWER_MS, () => {
      socket.destroy();
      reject(new Error(`the connection is still open after ${ANSWER_MS} ms`));
    });
    socket.write(bytes);
    if (cut) socket.end();
  });
}

t.test('malformed HTTP gets a client error or a closed connection, and nothing of the server', async t => {
  const app = await listening(t);
  for (const [name, malformed] of Object.entries(MALFORMED)) {
    const [bytes, cut] = typeof malformed === 'string' ? [malformed, false] : [malformed.cut, true];
    const answer = await exchange(app, bytes, cut);
    const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(answer)?.[1] ?? 0);
    t.ok(status < 500, `${name}: ${answer.slice(0, 200)}`);
    t.ok(cut || answer !== '', `${name} is answered`);
    t.notMatch(answer, INTERNALS, name);
    if (status >= 400 && answer.includes('application/problem+json')) {
      const { code } = JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4)) as {
        code: keyof typeof PROBLEMS;
      };
      t.equal(PROBLEMS[code].status, status, `${name}: ${code}`);
    }
  }
  t.equal((await app.ask('GET', '/readyz')).status, 200);
});

interface Item {
  readonly properties: { readonly op: { readonly const: string } } & { readonly [key: string]: Schema };
}

/** Schemas of all frames, with their `id`, by the OpenAPI document. */
async function frameSchemas(app: TestApp): Promise<Item[]> {
  const { schemas } = (await app.ask('GET', '/openapi.json')).body.components as unknown as {
    schemas: { [name: string]: Schema };
  };
  return (schemas.BatchItem.oneOf ?? []).map(
    ({ $ref }) => schemas[$ref!.slice('#/components/schemas/'.length)] as unknown as Item,
  );
}

async function sendFrames(t: Test, protocol: 'ragen.json' | 'ragen.msgpack', seed: number): Promise<void> {
  const app = await listening(t, { maxSessions: 50 });
  const items = await frameSchemas(app);
  const session = (await app.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' })).body.session_id;
  const wire = await dial(t, app, '/v1/ws', { protocol });
  const rng = Random.fromSeed(seed);
  const ops = new Set<string>();
  for (let id = 0; id < FRAMES; id++) {
    const schema = rng.choice(items);
    const { op } = schema.properties;
    ops.add(op.const);
    const drawn = fitting({ type: 'object', ...schema } as Schema, rng) as { [key: string]: never };
    const broken = rng.chance(0.5) ? spoilt(drawn, schema as unknown as Schema, rng) : drawn;
    const addressed = rng.chance(0.5) && 'session_id' in schema.properties ? { session_id: session } : {};
    const frame = { ...broken, ...addressed, id, op: op.const };
    wire.send(frame);
    const reply = (await wire.next()) as unknown as {
      id: unknown;
      ok: boolean;
      error?: { code: keyof typeof PROBLEMS; status: number };
    };
    const example = JSON.stringify({ frame, reply }).slice(0, 600);
    if (reply.id !== (reply.error?.code === 'bad_json' ? null : id))
      t.fail(`the reply has another id: ${example}`);
    if (
      !reply.ok &&
      (reply.error?.code === 'internal' || PROBLEMS[reply.error!.code]?.status !== reply.error?.status)
    )
      t.fail(`the problem is not one of those documented: ${example}`);
    if (INTERNALS.test(JSON.stringify(reply))) t.fail(`the reply shows the server's internals: ${example}`);
  }
  t.ok(ops.size > 15, `${ops.size} operations were sent`);
  t.equal((await app.ask('GET', '/readyz')).status, 200);
}

for (const seed of SEEDS)
  for (const protocol of ['ragen.json', 'ragen.msgpack'] as const)
    t.test(`${protocol} answers every frame, fitting or not, with a documented reply: seed ${seed}`, t =>
      sendFrames(t, protocol, seed),
    );

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import type { TestApp } from '../../test/app.test-data.ts';
import { waiting } from '../../test/environments.test-data.ts';
import { until } from '../../test/until.test-data.ts';
import { dial, hostOf, listening } from '../../test/wire.test-data.ts';
import { scheduler } from '../scheduling/fair-scheduler.ts';

/** Floods, in small: another client is answered during them. Nothing here depends on how fast the machine is. */

/** Pairs of a step and a picture: each takes some milliseconds. */
const PAIRS = 25;
/** Going up all the time solves nothing in the room of this seed. */
const ROOM = {
  env_id: 'Sokoban-v0',
  seed: 2,
  config: { dim_room: [12, 12], num_boxes: 1, search_depth: 20 },
};

async function rawSocket(t: Test, app: TestApp): Promise<Socket> {
  const [host, port] = hostOf(app).split(':');
  const socket = connect({ host, port: Number(port), noDelay: true, allowHalfOpen: true });
  t.teardown(() => socket.destroy());
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

const request = (app: TestApp, method: string, path: string, body = ''): string =>
  [
    `${method} ${path} HTTP/1.1`,
    `Host: ${hostOf(app)}`,
    ...(body === '' ? [] : ['Content-Type: application/json', `Content-Length: ${Buffer.byteLength(body)}`]),
    `\r\n${body}`,
  ].join('\r\n');

/** Requests, then bytes that are none: more than is read at once. */
const refusedText = (app: TestApp): string =>
  request(app, 'GET', '/livez').repeat(2000) + '\0'.repeat(4 * 1024 * 1024);

/** Replies as a client of HTTP by hand gets them. */
function replies(socket: Socket): { readonly statuses: string[] } {
  const statuses: string[] = [];
  socket.setEncoding('latin1');
  socket.on('data', (text: string) => {
    for (const [, status] of text.matchAll(/HTTP\/1\.1 (\d{3})/g)) statuses.push(status);
  });
  return { statuses };
}

t.test('another client is answered during a flood of frames', async t => {
  const app = await listening(t);
  const session_id = await app.open(ROOM);
  const flooder = await dial(t, app, '/v1/ws');
  const other = await dial(t, app, '/v1/ws');
  // The connection that opened the session has to make up for the search of its room.
  const third = await rawSocket(t, app);
  for (let i = 0; i < PAIRS; i++) {
    flooder.send({ id: 2 * i, op: 'step', session_id, action: 1 + (i % 4) });
    flooder.send({ id: 2 * i + 1, op: 'render', session_id, mode: 'png' });
  }
  other.send({ id: 1, op: 'ping' });
  t.match(await other.next(), { ok: true });
  t.ok(flooder.replies.length < PAIRS, `after ${flooder.replies.length} replies to the flood`);
  third.write(request(app, 'GET', '/livez'));
  await once(third, 'data');
  t.ok(flooder.replies.length < 2 * PAIRS, `livez after ${flooder.replies.length} of them`);
  await until(() => flooder.replies.length === 2 * PAIRS);
  t.same(
    flooder.replies.map(({ id }) => Number(id)),
    Array.from({ length: 2 * PAIRS }, (_, id) => id),
    'all are answered, in their order',
  );
});

t.test('another client is answered during a batch, which comes before what follows it', async t => {
  const app = await listening(t);
  const session_id = await app.open(ROOM);
  const flooder = await dial(t, app, '/v1/ws');
  const other = await dial(t, app, '/v1/ws');
  const items = Array.from({ length: PAIRS }, () => [
    { op: 'step', session_id, action: 1 },
    { op: 'render', session_id, mode: 'png' },
  ]).flat();
  flooder.send({ id: 1, op: 'batch', items });
  flooder.send({ id: 2, op: 'step', session_id, action: 1, expected_step: PAIRS + 1 });
  other.send({ id: 1, op: 'get', session_id });
  const { step } = (await other.next()).result;
  t.ok(Number(step) < PAIRS, `after ${step} steps of the batch`);
  // Both are done in this order; where the last slice has time left their replies may change places.
  await until(() => flooder.replies.length === 2);
  const [first, second] = flooder.replies.toSorted((a, b) => Number(a.id) - Number(b.id));
  t.match(first, { id: 1, ok: true });
  const results = first.result.results as unknown as { ok: boolean; result: { step?: number } }[];
  t.ok(results.every(({ ok }) => ok));
  t.same(
    results.flatMap(({ result }) => result.step ?? []),
    Array.from({ length: PAIRS }, (_, i) => i + 1),
  );
  t.match(second, { id: 2, ok: true, result: { step: PAIRS + 1 } });
});

t.test('another client is answered during pipelined requests, all of which are answered', async t => {
  const app = await listening(t);
  const session_id = await app.open(ROOM);
  const other = await dial(t, app, '/v1/ws');
  const socket = await rawSocket(t, app);
  const { statuses } = replies(socket);
  const step = request(app, 'POST', `/v1/sessions/${session_id}/step`, '{"action":1}');
  const picture = request(app, 'GET', `/v1/sessions/${session_id}/render?mode=png`);
  socket.write((step + picture).repeat(PAIRS));
  // The first reply says that the others are being read.
  await until(() => statuses.length > 0);
  other.send({ id: 1, op: 'get', session_id });
  const { step: steps } = (await other.next()).result;
  t.ok(Number(steps) < PAIRS, `after ${steps} of the steps`);
  await until(() => statuses.length === 2 * PAIRS);
  t.ok(statuses.every(status => status === '200'));
});

t.test('a connection is not read while its requests wait, and loses none of them', async t => {
  const app = await listening(t);
  const socket = await rawSocket(t, app);
  const { statuses } = replies(socket);
  let most = 0;
  let handled = 0;
  app.server.server.prependListener('request', () => {
    handled++;
    most = Math.max(most, handled - statuses.length);
  });
  const count = 10_000;
  socket.write(request(app, 'GET', '/livez').repeat(count));
  await until(() => statuses.length === count);
  // What comes in one read cannot be left unread: 64 KiB have about 1,600 of them.
  t.ok(most < 6000, `at most ${most} were read and not answered`);
});

t.test('a WebSocket handles no more frames while its batches in progress hold too much', async t => {
  const app = await listening(t);
  const { send, replies } = await dial(t, app, '/v1/ws');
  const other = await dial(t, app, '/v1/ws');
  // Each holds at least 4 MB, of the 16 MiB that a socket may.
  const failing = Array(4000).fill({ op: 'x' }) as object[];
  const count = 6;
  for (let id = 1; id <= count; id++) {
    const session_id = await app.open({ env_id: 'test/Slow-v0' });
    send({ id, op: 'batch', items: [{ op: 'step', session_id, action: 'add' }, ...failing] });
  }
  send({ id: 0, op: 'get', session_id: await app.open() });
  await until(() => waiting.length > 0 && scheduler.queued === 0);
  other.send({ id: 1, op: 'get', session_id: await app.open() });
  t.match(await other.next(), { ok: true }, 'another socket continues');
  await app.ask('GET', '/livez');
  t.ok(waiting.length < count, `${waiting.length} are in progress`);
  t.same(replies, []);
  await until(() => {
    for (const pass of waiting.splice(0)) pass();
    return replies.length === count + 1;
  });
  t.equal(new Set(replies.map(({ id }) => id)).size, count + 1, 'each is answered once');
});

t.test('no further replies are made for a client that reads none', async t => {
  const app = await listening(t);
  const socket = await rawSocket(t, app);
  let made = 0;
  app.server.server.prependListener('request', (asked, response) => {
    if (asked.url === '/openapi.json') response.on('prefinish', () => made++);
  });
  socket.pause();
  const count = 2000;
  socket.write(request(app, 'GET', '/openapi.json').repeat(count));
  // The replies fill what the system keeps of a connection.
  let before = -1;
  await until(async () => {
    const isSame = made === before;
    before = made;
    for (let i = 0; i < 5; i++) await app.ask('GET', '/livez');
    return isSame && before > 0;
  });
  t.ok(made < count / 2, `${made} were made`);
});

t.test('a refused connection is closed although its client keeps it open and had more to send', async t => {
  const app = await listening(t);
  const socket = await rawSocket(t, app);
  let answer = '';
  socket.setEncoding('latin1').on('data', text => {
    answer += text;
  });
  socket.write(refusedText(app));
  await until(() => answer !== '');
  const connections = async () =>
    new Promise<number>((resolve, reject) =>
      app.server.server.getConnections((error, count) => (error ? reject(error) : resolve(count))),
    );
  await until(async () => (await connections()) === 0);
});

t.test('a server closes in time while clients are busy', async t => {
  const app = await listening(t);
  const refused = await rawSocket(t, app);
  const answered = once(refused, 'data');
  refused.write(refusedText(app));
  const slow = await rawSocket(t, app);
  slow.write(
    'POST /v1/batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{',
  );
  const head = await rawSocket(t, app);
  head.write('GET /livez HTTP/1.1\r\n');
  const deaf = await dial(t, app, '/v1/ws');
  deaf.socket.pause();
  await answered;
  await app.server.close();
  t.pass('it is closed');
});

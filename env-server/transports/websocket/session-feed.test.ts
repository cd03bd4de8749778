import { once } from 'node:events';
import t from 'tap';
import { WebSocket } from 'ws';
import { dial, hostOf, listening } from '../../../test/wire.test-data.ts';
import type { Services } from '../../operations/operation.ts';
import type { Principal } from '../../sessions/principal.ts';
import { hashToken } from '../access/auth.ts';
import { type FeedMessage, LOOK_MS, SessionFeed } from './session-feed.ts';

const TOKENS = JSON.stringify(
  ['anna', 'ben']
    .map(name => ({ name, sha256: hashToken(`${name}-secret`), scopes: ['play'] }))
    .concat([{ name: 'root', sha256: hashToken('root-secret'), scopes: ['admin'] }]),
);
const bearer = (name: string) => ({ authorization: `Bearer ${name}-secret` });

for (const protocol of ['ragen.json', 'ragen.msgpack']) {
  t.test(`${protocol}: a watcher is sent sessions as they open, step and end`, async t => {
    const app = await listening(t);
    const first = await app.open({ seed: 1 });
    const { send, next } = await dial(t, app, '/v1/ws', { protocol });
    send({ id: 'w', op: 'watch' });
    const start = await next();
    t.match(start, {
      id: 'w',
      ok: true,
      result: { order: [first], sessions: [{ session_id: first, step: 0 }] },
    });
    await app.ask('POST', `/v1/sessions/${first}/step`, { action: 'add' });
    t.match(await next(), {
      id: 'w',
      result: {
        sessions: [{ session_id: first, step: 1, action: 'add', return: 1, client: 'local', ended: null }],
        order: undefined,
      },
    });
    const second = await app.open();
    t.match((await next()).result.order, [second, first], 'newest first');
    await app.ask('DELETE', `/v1/sessions/${first}`);
    const end = await next();
    t.match(end.result, {
      sessions: [{ session_id: first, ended: 'session_closed', step: 1, return: 1, action: 'add' }],
    });
    send({ id: 2, op: 'unwatch' });
    t.match(await next(), { id: 2, result: { watching: false } });
    app.wait(61);
    send({ id: 'w', op: 'watch' });
    t.match((await next()).result.order, [second], 'an ended session is shown for a minute');
  });
}

t.test('the feed filters by environment, group and client; unknown filters are refused', async t => {
  const app = await listening(t);
  const one = await app.open({ group_id: 'g1' });
  await app.open({ group_id: 'g2' });
  const { send, next } = await dial(t, app, '/v1/ws');
  const order = async (filter: object) => {
    send({ id: 1, op: 'watch', ...filter });
    return (await next()).result.order;
  };
  t.same(await order({ group_id: 'g1' }), [one]);
  t.same(await order({ env_id: 'Other-v0' }), []);
  t.equal(((await order({ client: 'local' })) as unknown as string[]).length, 2);
  t.equal(((await order({ limit: 1 })) as unknown as string[]).length, 1);
  send({ id: 2, op: 'watch', limit: 0 });
  t.match(await next(), { id: 2, error: { code: 'invalid_request' } });
});

t.test('a token sees its own sessions only, open or ended; an administrator sees all', async t => {
  const app = await listening(t, { tokens: TOKENS });
  const open = async (name: string) => {
    const { body } = await app.ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0' }, bearer(name));
    await app.ask('POST', `/v1/sessions/${body.session_id}/step`, { action: 'add' }, bearer(name));
    return String(body.session_id);
  };
  const [annas, bens] = [await open('anna'), await open('ben')];
  await app.ask('DELETE', `/v1/sessions/${annas}`, undefined, bearer('anna'));
  const seen = async (name: string) => {
    const { send, next } = await dial(t, app, '/v1/ws', { headers: bearer(name) });
    send({ id: 1, op: 'watch' });
    return (await next()).result.order;
  };
  t.same(await seen('anna'), [annas]);
  t.same(await seen('ben'), [bens]);
  t.same(await seen('root'), [bens, annas]);
  const replay = async (name: string, id: string) =>
    (await app.ask('GET', `/v1/sessions/${id}/replay`, undefined, bearer(name))).status;
  t.equal(await replay('anna', annas), 200);
  t.equal(await replay('ben', annas), 404);
  t.equal(await replay('root', annas), 200);
});

t.test('a browser gives its token as a subprotocol; a wrong one is refused', async t => {
  const app = await listening(t, { tokens: TOKENS });
  const subprotocol = (token: string) => `ragen.bearer.${Buffer.from(token).toString('base64url')}`;
  const offer = async (token: string) => {
    const socket = new WebSocket(`ws://${hostOf(app)}/v1/ws`, ['ragen.json', subprotocol(token)]);
    t.teardown(() => socket.terminate());
    await once(socket, 'open');
    return socket;
  };
  const socket = await offer('anna-secret');
  t.equal(socket.protocol, 'ragen.json', 'the token is not sent back');
  socket.send('{"id":1,"op":"ping"}');
  t.match(JSON.parse(String((await once(socket, 'message'))[0])), { ok: true });
  await t.rejects(offer('wrong'), /401/);
  const header = { 'sec-websocket-protocol': subprotocol('anna-secret') };
  t.equal((await app.ask('GET', '/v1/sessions', undefined, header)).status, 401, 'only for the WebSocket');
});

t.test('a token may watch with so many sockets; one that closes makes room', async t => {
  const app = await listening(t);
  const sockets = await Promise.all(Array.from({ length: 17 }, () => dial(t, app, '/v1/ws')));
  for (const { send, next } of sockets.slice(0, 16)) {
    send({ id: 1, op: 'watch' });
    t.match(await next(), { ok: true });
  }
  const last = sockets[16];
  last.send({ id: 1, op: 'watch' });
  t.match(await last.next(), { error: { code: 'too_many_requests', detail: /16 sockets/ } });
  sockets[0].socket.close();
  await once(sockets[0].socket, 'close');
  for (;;) {
    last.send({ id: 2, op: 'watch' });
    if ((await last.next()).ok) break;
  }
});

t.test('a watcher that takes nothing gets nothing more; then it gets what is, not what was', async t => {
  const app = await listening(t);
  const id = await app.open({ config: { goal: 1000, max_steps: 1000 } });
  const sent: FeedMessage[] = [];
  const failed = (error: unknown) => t.fail(String(error));
  const target = { bytesUnsent: 0, send: (message: FeedMessage) => sent.push(message), failed };
  const principal: Principal = { name: 'local', scopes: new Set(['play']) };
  const feed = new SessionFeed({ sessions: app.sessions } as Services, principal, {}, target);
  t.teardown(() => feed.stop());
  t.match(await feed.start(), { order: [id], sessions: [{ step: 0 }] });
  target.bytesUnsent = 1024 * 1024;
  for (let step = 0; step < 40; step++) {
    await app.ask('POST', `/v1/sessions/${id}/step`, { action: 'add' });
    await new Promise(done => setTimeout(done, 40));
  }
  t.same(sent, []);
  target.bytesUnsent = 0;
  await new Promise(done => setTimeout(done, 3 * LOOK_MS));
  t.equal(sent.length, 1);
  t.match(sent[0], { sessions: [{ session_id: id, step: 40, return: 40 }] });
});

t.test('a watcher of sessions that cannot be written gets an error, and may watch again', async t => {
  const app = await listening(t);
  const { send, next } = await dial(t, app, '/v1/ws');
  send({ id: 'w', op: 'watch' });
  t.match(await next(), { id: 'w', ok: true });
  const broken = await app.open({ env_id: 'test/Broken-v0', config: { at: 'card' } });
  t.match(await next(), { id: 'w', ok: false, error: { code: 'internal' } });
  await app.ask('DELETE', `/v1/sessions/${broken}`);
  const id = await app.open();
  send({ id: 'again', op: 'watch' });
  t.match(await next(), { id: 'again', ok: true, result: { order: [id] } });
});

t.test('a client’s ended sessions are bounded', async t => {
  const app = await listening(t);
  for (let i = 0; i < 230; i++) {
    const id = await app.open();
    await app.ask('POST', `/v1/sessions/${id}/step`, { action: 'add' });
    await app.ask('DELETE', `/v1/sessions/${id}`);
  }
  const principal: Principal = { name: 'local', scopes: new Set(['play']) };
  t.equal(app.sessions.finished(principal).length, 200);
  await app.ask('DELETE', `/v1/sessions/${await app.open()}`);
  t.equal(
    app.sessions.finished(principal).length,
    200,
    'one without a step takes no place from those that were played',
  );
  const { send, next } = await dial(t, app, '/v1/ws');
  send({ id: 1, op: 'watch', limit: 200 });
  t.equal((await next()).result.order.length as unknown as number, 200);
});

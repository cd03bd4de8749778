import { mock } from 'node:test';
import t, { type Test } from 'tap';
import { testApp } from '../../test/app.test-data.ts';
import { testRegistry } from '../../test/environments.test-data.ts';
import { type AppParts, createApp } from '../app.ts';
import type { Settings } from '../config/settings.ts';
import { FaultyDisk } from '../persistence/journal/journal.test-data.ts';
import { clientKey, scheduler } from '../scheduling/fair-scheduler.ts';
import { hashToken } from '../transports/access/auth.ts';
import { ServerClock } from './limits/server-clock.ts';
import type { Principal } from './principal.ts';

/** Idle times: only the time counts in which a client could have used its session. */

const TTL_S = 10;
const KEYED = { 'idempotency-key': 'k1' };

t.test('a request that has waited does not move the last use back', async t => {
  const { sessions, open, wait } = await testApp(t, { idleTtlSeconds: TTL_S });
  const id = await open();
  const asked = sessions.now();
  wait(8);
  const session = sessions.get(id)!;
  const principal: Principal = { name: session.owner, scopes: new Set(['admin']) } as never;
  sessions.find(principal, id);
  const { usedAt } = session;
  t.equal(usedAt, asked + 8000);
  sessions.find(principal, id, asked);
  t.equal(session.usedAt, usedAt);
  wait(9);
  t.ok(sessions.get(id), 'it lives on from its last use');
  wait(2);
  t.notOk(sessions.get(id));
});

t.test('a repeated request that opened sessions is a use of them', async t => {
  const { ask, wait } = await testApp(t, { idleTtlSeconds: TTL_S });
  for (const count of [1, 3, 40]) {
    const headers = { 'idempotency-key': `create ${count}` };
    const create = () => ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', count }, headers);
    const first = await create();
    t.equal(first.status, 201);
    wait(8);
    t.same((await create()).body, first.body);
    wait(8);
    const { session_id, sessions = [{ session_id }] } = first.body as never as {
      session_id: string;
      sessions?: { session_id: string }[];
    };
    t.equal(sessions.length, count);
    for (const { session_id: id } of sessions) t.equal((await ask('GET', `/v1/sessions/${id}`)).status, 200);
    const clone = () => ask('POST', `/v1/sessions/${session_id}/clone`, { count }, KEYED);
    const cloned = (await clone()).body.sessions as never as { session_id: string }[];
    wait(8);
    t.equal((await clone()).status, 201);
    wait(8);
    for (const { session_id: id } of cloned) t.equal((await ask('GET', `/v1/sessions/${id}`)).status, 200);
    wait(11);
    t.equal((await ask('GET', `/v1/sessions/${session_id}`)).status, 410, 'and then it expires');
    t.equal((await create()).status, 201, 'the reply stays');
    t.equal((await ask('GET', `/v1/sessions/${session_id}`)).status, 410, 'and opens nothing again');
  }
});

/** A server with a clock that `pass` moves, a second or more at a time, without a turn of the event loop. */
async function timed(t: Test, given: Partial<Settings> = {}, parts: Partial<AppParts> = {}) {
  mock.timers.enable({ apis: ['setInterval'] });
  t.teardown(() => mock.timers.reset());
  let time = 0;
  const clock = new ServerClock({
    wall: () => 1e12 + time,
    monotonic: () => time,
    uptime: () => time,
    boot: () => 'b',
  });
  const limits = { logLevel: 'silent', idleTtlSeconds: TTL_S, lifetimeSeconds: 100, ...given } as const;
  const { server, sessions } = await createApp(limits, { registry: testRegistry(), clock, ...parts });
  t.teardown(() => server.close());
  const post = (url: string, payload: object, token = '') =>
    server.inject({ method: 'POST', url, payload, headers: { authorization: `Bearer ${token}` } });
  const open = async (token?: string) => {
    const reply = await post('/v1/sessions', { env_id: 'test/Counter-v0' }, token);
    t.equal(reply.statusCode, 201);
    return reply.json().session_id as string;
  };
  const pass = (seconds: number) => {
    time += 1000 * seconds;
    mock.timers.tick(1000);
  };
  /** Lets seconds pass one by one. */
  const elapse = (seconds: number) => {
    for (let s = 1; s <= seconds; s++) pass(1);
  };
  return { sessions, post, open, pass, elapse };
}

t.test('a pause of the process is no idle time', async t => {
  const { sessions, open, pass, elapse } = await timed(t);
  await open();
  elapse(5);
  pass(20);
  t.equal(sessions.size, 1, 'the requests of the pause are read now');
  elapse(3);
  t.equal(sessions.size, 1);
  elapse(3);
  t.equal(sessions.size, 0, 'its idle time continues');
  await open();
  pass(101);
  t.equal(sessions.size, 0, 'its lifetime passes in a pause, too');
});

t.test("time in which a client's requests wait for their turn is no idle time of its sessions", async t => {
  const tokens = JSON.stringify(
    ['a', 'b'].map(name => ({ name, sha256: hashToken(name), scopes: ['play'] })),
  );
  const { sessions, open, elapse } = await timed(t, { tokens });
  const [mine, other] = [await open('a'), await open('b')];
  elapse(5);
  scheduler.lane(clientKey('a')).enqueue(() => undefined);
  elapse(50);
  t.ok(sessions.get(mine));
  t.notOk(sessions.get(other), 'another client does not wait');
  // The event loop turns.
  await new Promise(setImmediate);
  elapse(3);
  t.ok(sessions.get(mine));
  elapse(4);
  t.notOk(sessions.get(mine), 'its idle time continues');

  const id = await open('a');
  for (let s = 1; s <= 2 * TTL_S; s++) {
    scheduler.lane(clientKey('a')).enqueue(() => undefined);
    elapse(1);
    await new Promise(setImmediate);
  }
  t.notOk(sessions.get(id), 'requests that get their turn in time keep no session that they do not use');
});

t.test('time in which a slow disk holds a reply is no idle time', async t => {
  const disk = new FaultyDisk();
  const settings = { data: t.testdir(), durability: 'fsync', checkpointSeconds: 0 } as const;
  const { sessions, post, open, elapse } = await timed(t, settings, { journalDisk: disk });
  const id = await open();
  disk.holds = true;
  const reply = post(`/v1/sessions/${id}/step`, { action: 'add' });
  while (disk.late.length === 0) await new Promise(setImmediate);
  elapse(50);
  t.ok(sessions.get(id));
  disk.holds = false;
  disk.finishWrites();
  t.equal((await reply).statusCode, 200);
  elapse(8);
  t.ok(sessions.get(id), 'its idle time begins with the reply');
  elapse(4);
  t.notOk(sessions.get(id));
});

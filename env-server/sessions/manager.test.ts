import { mock } from 'node:test';
import t from 'tap';
import { testApp } from '../../test/app.test-data.ts';
import { testRegistry } from '../../test/environments.test-data.ts';
import { createApp } from '../app.ts';
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

t.test('a pause of the process is no idle time', async t => {
  mock.timers.enable({ apis: ['setInterval'] });
  t.teardown(() => mock.timers.reset());
  let time = 0;
  const clock = new ServerClock({
    wall: () => 1e12 + time,
    monotonic: () => time,
    uptime: () => time,
    boot: () => 'b',
  });
  const limits = { logLevel: 'silent', idleTtlSeconds: TTL_S, lifetimeSeconds: 100 } as const;
  const { server, sessions } = await createApp(limits, { registry: testRegistry(), clock });
  t.teardown(() => server.close());
  const open = () =>
    server.inject({ method: 'POST', url: '/v1/sessions', payload: { env_id: 'test/Counter-v0' } });
  const pass = (seconds: number) => {
    time += 1000 * seconds;
    mock.timers.tick(1000);
  };
  t.equal((await open()).statusCode, 201);
  for (let s = 1; s <= 5; s++) pass(1);
  pass(20);
  t.equal(sessions.size, 1, 'the requests of the pause are read now');
  for (let s = 1; s <= 3; s++) pass(1);
  t.equal(sessions.size, 1);
  for (let s = 1; s <= 3; s++) pass(1);
  t.equal(sessions.size, 0, 'its idle time continues');
  t.equal((await open()).statusCode, 201);
  pass(101);
  t.equal(sessions.size, 0, 'its lifetime passes in a pause, too');
});

import t from 'tap';
import { isProblem, testApp } from '../../../test/app.test-data.ts';

const LONG = { config: { goal: 1000, max_steps: 1000 } };

t.test(
  'a replay has every step with the state as plain data, of an open and of an ended session',
  async t => {
    const { ask, open } = await testApp(t);
    const id = await open({ seed: 7, ...LONG });
    for (const action of ['draw', 'add', 'draw']) await ask('POST', `/v1/sessions/${id}/step`, { action });
    const records = (await ask('GET', `/v1/sessions/${id}/trajectory`)).text.trimEnd().split('\n');
    const { body } = await ask('GET', `/v1/sessions/${id}/replay`);
    t.match(body.session, { session_id: id, env_id: 'test/Counter-v0', seed: 7, step: 3, ended: null });
    t.match(body.session.config, LONG.config);
    const seen = body.records as unknown as { observation: unknown; action: unknown; structured: unknown }[];
    t.same(
      seen.map(({ observation, action }) => [observation, action]),
      records.map(line => JSON.parse(line)).map(({ observation, action }) => [observation, action]),
    );
    t.ok(seen.every(({ structured }) => typeof structured === 'object'));
    t.equal(body.next, null);
    const later = (await ask('GET', `/v1/sessions/${id}/replay?from=2`)).body;
    t.same(later.records, seen.slice(2));

    await ask('DELETE', `/v1/sessions/${id}`);
    isProblem(t, await ask('GET', `/v1/sessions/${id}/trajectory`), 'session_closed');
    const ended = (await ask('GET', `/v1/sessions/${id}/replay`)).body;
    t.match(ended.session, { session_id: id, step: 3, ended: 'session_closed' });
    t.same(ended.records, body.records);
  },
);

t.test('a replay has the chance of its episode, of an open and of an ended session', async t => {
  const { ask, open } = await testApp(t);
  const id = await open({ seed: 7, dynamics_seed: 4, ...LONG });
  await ask('POST', `/v1/sessions/${id}/step`, { action: 'draw' });
  const { snapshot_id } = (await ask('POST', `/v1/sessions/${id}/snapshot`)).body;
  await ask('POST', `/v1/sessions/${id}/restore`, {
    snapshot_id: snapshot_id as unknown as string,
    dynamics_seed: 9,
  });
  const chance = { dynamics_seed: 4, reseeds: [{ step: 1, dynamics_seed: 9 }] };
  t.match((await ask('GET', `/v1/sessions/${id}/replay`)).body.session, chance);
  await ask('DELETE', `/v1/sessions/${id}`);
  t.match((await ask('GET', `/v1/sessions/${id}/replay`)).body.session, {
    ended: 'session_closed',
    ...chance,
  });
});

t.test('an ended session is forgotten after a minute; looking keeps no session alive', async t => {
  const { ask, open, wait } = await testApp(t, { idleTtlSeconds: 100 });
  const [closed, idle] = [await open(), await open()];
  for (const id of [closed, idle]) await ask('POST', `/v1/sessions/${id}/step`, { action: 'add' });
  await ask('DELETE', `/v1/sessions/${closed}`);
  wait(59);
  t.equal((await ask('GET', `/v1/sessions/${closed}/replay`)).status, 200);
  t.equal((await ask('GET', `/v1/sessions/${idle}/replay`)).status, 200);
  wait(2);
  isProblem(t, await ask('GET', `/v1/sessions/${closed}/replay`), 'session_closed');
  wait(40);
  t.match((await ask('GET', `/v1/sessions/${idle}/replay`)).body.session, { ended: 'session_expired' });
  isProblem(t, await ask('GET', '/v1/sessions/s-nowhere/replay'), 'unknown_session');
});

t.test('a session that ended before its first step can be looked at', async t => {
  const { ask, open } = await testApp(t);
  const id = await open({ seed: 7 });
  await ask('DELETE', `/v1/sessions/${id}`);
  const { body } = await ask('GET', `/v1/sessions/${id}/replay`);
  t.match(body.session, { session_id: id, step: 0, ended: 'session_closed' });
  t.equal((body.records as unknown as unknown[]).length, 1);
});

t.test('a long episode comes page by page', async t => {
  const { ask, open } = await testApp(t);
  const id = await open({ config: { goal: 1e6, max_steps: 1e6 }, options: {} });
  const action = 'add';
  const items = Array.from({ length: 1000 }, () => ({ op: 'step', session_id: id, action }));
  for (let round = 0; round < 8; round++) await ask('POST', '/v1/batch', { items });
  let from: unknown = 0;
  let count = 0;
  let pages = 0;
  while (from !== null) {
    const { body } = await ask('GET', `/v1/sessions/${id}/replay?from=${from}`);
    count += (body.records as unknown as unknown[]).length;
    from = body.next;
    pages++;
  }
  t.equal(count, 8001);
  t.ok(pages > 1);
});

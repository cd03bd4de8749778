import t from 'tap';
import { isProblem, type TestApp, testApp } from '../../../test/app.test-data.ts';
import { waiting } from '../../../test/environments.test-data.ts';

type Result = {
  ok: boolean;
  pending?: boolean;
  result: { [key: string]: unknown };
  error: { [key: string]: unknown };
};

async function batch(
  app: TestApp,
  items: readonly unknown[],
  more: { [key: string]: number } = {},
  key?: string,
) {
  const headers: { [name: string]: string } = key === undefined ? {} : { 'idempotency-key': key };
  const reply = await app.ask('POST', '/v1/batch', JSON.stringify({ items, ...more }), headers);
  return { ...reply, results: reply.body.results as unknown as Result[] };
}

t.test('results come in order; a failed item stops no other', async t => {
  const app = await testApp(t);
  const id = await app.open();
  const other = await app.open();
  const { status, results } = await batch(app, [
    { op: 'step', session_id: id, action: 'add' },
    { op: 'step', session_id: 'unknown', action: 'add' },
    { op: 'dance' },
    'not an object',
    { op: 'step', session_id: id, action: 'add', color: 'red' },
    { op: 'batch', items: [] },
    { op: 'step', session_id: id, action: 'add', expected_step: 2 },
    { op: 'create', env_id: 'test/Counter-v0', seed: 1 },
    { op: 'get', session_id: other },
    { op: 'close', session_id: other },
    { op: 'get_environment', env_id: 'test/Counter-v0' },
    { op: 'render', session_id: id, mode: 'png' },
  ]);
  t.equal(status, 200);
  t.same(
    results.map(result => (result.ok ? 'ok' : result.error.code)),
    [
      'ok',
      'unknown_session',
      'invalid_request',
      'invalid_request',
      'invalid_request',
      'invalid_request',
      ...new Array(6).fill('ok'),
    ],
  );
  t.match(results[1].error, { status: 404, detail: String, trace_id: String });
  t.match(results[2].error.detail, /unknown op "dance"; known are create, get, /);
  t.equal(results[6].result.step, 2);
  t.equal(results[9].result, null);
  t.match(results[11].result, { mode: 'png', png: /^iVBOR/ });
});

t.test('one key makes a whole batch repeatable, however long', async t => {
  const app = await testApp(t);
  const id = await app.open({ config: { preset: 'long' } });
  const items = Array.from({ length: 100 }, () => ({ op: 'step', session_id: id, action: 'draw' }));
  items.push({ op: 'create', session_id: id, action: 'draw' });
  const first = await batch(app, items, {}, 'k');
  const again = await batch(app, items, {}, 'k');
  t.same(again.results.slice(0, 100), first.results.slice(0, 100));
  t.equal(again.results[99].result.step, 100);
  t.equal((await app.ask('GET', `/v1/sessions/${id}`)).body.step, 100);
});

t.test('items may carry separate keys', async t => {
  const app = await testApp(t);
  const id = await app.open();
  const item = { op: 'step', session_id: id, action: 'draw', request_key: 'mine' };
  const { results } = await batch(app, [item, item]);
  t.same(results[1], results[0]);
  t.equal(results[1].result.step, 1);
});

t.test('a wrong batch is refused as a whole', async t => {
  const app = await testApp(t, { maxBatchItems: 2 });
  isProblem(t, await batch(app, []), 'invalid_request');
  isProblem(t, await batch(app, [{ op: 'list' }], { weight: 1 }), 'invalid_request');
  const large = await batch(app, [{ op: 'list' }, { op: 'list' }, { op: 'list' }]);
  isProblem(t, large, 'body_too_large');
  t.match(large.body.detail, /3 items; at most 2/);
});

t.test('items of one session run in order, slow ones too; others go past', async t => {
  const app = await testApp(t);
  const slow = await app.open({ env_id: 'test/Slow-v0' });
  const quick = await app.open();
  const replies = batch(app, [
    { op: 'step', session_id: slow, action: 'add' },
    { op: 'get', session_id: slow },
    { op: 'step', session_id: quick, action: 'add' },
  ]);
  while (waiting.length === 0) await new Promise(resolve => setImmediate(resolve));
  waiting.shift()!();
  const { results } = await replies;
  t.same(
    results.map(({ result }) => result.step),
    [1, 1, 1],
  );
});

t.test('with `wait` a batch does not wait for stragglers, and names them', async t => {
  const app = await testApp(t);
  const slow = await app.open({ env_id: 'test/Slow-v0' });
  const quick = await app.open();
  const step = { op: 'step', session_id: slow, action: 'add', request_key: 'k' };
  const { results, body } = await batch(app, [step, { op: 'step', session_id: quick, action: 'add' }], {
    wait: 1,
  });
  t.same(body.pending, [0]);
  t.same(results[0], { ok: false, pending: true });
  t.equal(results[1].ok, true);
  waiting.shift()!();
  const later = await batch(app, [step], { wait: 1 });
  t.same(later.body.pending, []);
  t.equal(later.results[0].result.step, 1, 'its key gets the reply');
});

t.test('a batch with very long replies ends early, and says which items were not carried out', async t => {
  const app = await testApp(t, { maxBatchItems: 100_000 });
  const one = await app.ask('POST', '/v1/batch', { items: [{ op: 'list_environments' }] });
  const items = new Array(Math.ceil((40 * 1024 * 1024) / one.text.length)).fill({
    op: 'list_environments',
  });
  const session_id = await app.open();
  items.push({ op: 'step', session_id, action: 'add' });
  const reply = await app.ask('POST', '/v1/batch', { items });
  t.equal(reply.status, 200);
  t.ok(reply.text.length < 34 * 1024 * 1024);
  const results = reply.body.results as unknown as { ok: boolean; error?: { code: string } }[];
  t.equal(results.length, items.length);
  t.equal(results[0].ok, true);
  t.match(results.at(-1), {
    ok: false,
    error: { code: 'too_many_requests', detail: /was not carried out/ },
  });
  t.match(await app.ask('GET', `/v1/sessions/${session_id}`), { body: { step: 0 } });
});

t.test('an item with a late result that cannot be written fails, and stops no other', async t => {
  const app = await testApp(t);
  const broken = await app.open({ env_id: 'test/Broken-v0', config: { at: 'late reply' } });
  const id = await app.open();
  const { status, results } = await batch(app, [
    { op: 'step', session_id: broken, action: 'add' },
    { op: 'step', session_id: id, action: 'add' },
  ]);
  t.equal(status, 200);
  t.match(results, [
    { ok: false, error: { code: 'internal' } },
    { ok: true, result: { step: 1 } },
  ]);
});

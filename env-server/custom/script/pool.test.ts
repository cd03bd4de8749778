import type { Worker } from 'node:worker_threads';
import t from 'tap';
import { Problem } from '../../problems.ts';
import { ScriptPool } from './pool.ts';

const settings = {
  workers: 2,
  timeMs: 300,
  memoryBytes: 16 * 1024 * 1024,
  outputLength: 10_000,
  valueBytes: 100_000,
};
/** A script of the owner `me` unless another is named. */
const scriptIn = (pool: ScriptPool, name: string, source: string, owner = 'me') =>
  pool.script({ name, source, owner });
const STEP = '{"op":"step","state":{"n":1},"rng":[1,2,3,4]}';
const counting =
  'function reset() { return { n: 0 }; } function step(s) { return { state: { n: s.n + 1 } }; } function observe(s) { return String(s.n); }';
const withStep = (body: string) =>
  `function reset() { return {}; } function step(state) { ${body} } function observe() { return "x"; }`;
/** Work inside the engine that never asks whether to stop. */
const DEAF =
  'let o = {}; for (let i = 0; i < 26; i++) o = { a: o, b: o }; return { state: JSON.stringify(o).length };';

async function codeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return 'none';
  } catch (error) {
    return error instanceof Problem ? error.code : String(error);
  }
}

t.test('concurrent calls each get their own answer', async t => {
  const pool = new ScriptPool(settings);
  t.teardown(() => pool.close());
  const script = scriptIn(pool, 'test/Counting-v0', counting);
  t.same(await pool.load(script), { valid_actions: false });
  const answers = await Promise.all(
    Array.from({ length: 200 }, (_, n) =>
      pool.call(script, `{"op":"step","state":{"n":${n}},"rng":[1,2,3,4]}`),
    ),
  );
  t.same(
    answers.map(text => text.split('\n')[0]),
    Array.from({ length: 200 }, (_, n) => `{"n":${n + 1}}`),
  );
});

t.test('a script that loops in all its sessions leaves a worker to the others', async t => {
  const pool = new ScriptPool({ ...settings, timeMs: 2000 });
  t.teardown(() => pool.close());
  const looping = scriptIn(pool, 'test/Looping-v0', withStep('for (;;) {}'));
  const good = scriptIn(pool, 'test/Counting-v0', counting);
  await pool.call(good, STEP);
  let stopped = 0;
  const stops = Array.from({ length: 4 }, () =>
    codeOf(pool.call(looping, STEP)).then(code => {
      stopped++;
      return code;
    }),
  );
  for (let i = 0; i < 20; i++) await pool.call(good, STEP);
  t.equal(stopped, 0, 'twenty calls were answered before the first loop reached its limit');
  await pool.close();
  t.same(new Set(await Promise.all(stops)), new Set(['draining']));
});

t.test('slow scripts of one owner do not delay other owners', async t => {
  const pool = new ScriptPool({ ...settings, timeMs: 200 });
  t.teardown(() => pool.close());
  const mine = scriptIn(pool, 'me/Counting-v0', counting);
  const theirs = Array.from({ length: 150 }, (_, i) =>
    scriptIn(pool, `them/Slow${i}-v0`, withStep('for (;;) {}'), 'them'),
  );
  await pool.call(mine, STEP);
  let answered = 0;
  for (const script of theirs) codeOf(pool.call(script, STEP)).then(() => answered++);
  for (let i = 0; i < 5; i++) await pool.call(mine, STEP);
  t.ok(answered < 10, `five calls were answered before 10 of the other 150 were; ${answered} were`);
});

t.test('a call that ignores the request to stop ends with its worker, and the next call works', async t => {
  const pool = new ScriptPool({ ...settings, timeMs: 200 });
  t.teardown(() => pool.close());
  const deaf = scriptIn(pool, 'test/Deaf-v0', withStep(DEAF));
  const good = scriptIn(pool, 'test/Counting-v0', counting);
  const stop = codeOf(pool.call(deaf, STEP));
  t.match(await pool.call(good, STEP), /^\{"n":2\}/);
  t.equal(await stop, 'script_limit');
  t.equal(pool.kills, 1);
  t.match(await pool.call(good, STEP), /^\{"n":2\}/);
});

t.test('a state too deep for the engine fails its call, not the pool', async t => {
  const pool = new ScriptPool(settings);
  t.teardown(() => pool.close());
  const deep = scriptIn(
    pool,
    'test/Deep-v0',
    withStep('let o = {}; for (let i = 0; i < 1e5; i++) o = { o }; return { state: o };'),
  );
  t.equal(await codeOf(pool.call(deep, STEP)), 'script_limit');
  t.match(await pool.call(scriptIn(pool, 'test/Counting-v0', counting), STEP), /^\{"n":2\}/);
});

t.test('a script that keeps reaching its limits is paused for a while', async t => {
  let now = 0;
  const pool = new ScriptPool({ ...settings, timeMs: 100 }, () => now);
  t.teardown(() => pool.close());
  const script = scriptIn(
    pool,
    'test/Sometimes-v0',
    withStep('if (state.n === 1) for (;;) {} return { state };'),
  );
  const harmless = STEP.replace('"n":1', '"n":2');
  for (let i = 0; i < 5; i++) t.equal(await codeOf(pool.call(script, STEP)), 'script_limit');
  t.equal(await codeOf((async () => pool.call(script, harmless))()), 'too_many_requests');
  now = 1500;
  t.equal(await codeOf(pool.call(script, harmless)), 'none');
  t.equal(await codeOf(pool.call(script, STEP)), 'script_limit');
  t.equal(await codeOf(pool.call(script, harmless)), 'none');
});

t.test('a script with calls that repeatedly end their worker is paused for a while', async t => {
  let workers = 0;
  const onWorker = (worker: Worker) => {
    workers++;
    worker.terminate();
  };
  process.on('worker', onWorker);
  t.teardown(() => process.off('worker', onWorker));
  const pool = new ScriptPool(settings);
  t.teardown(() => pool.close());
  const script = scriptIn(pool, 'test/Fatal-v0', counting);
  for (let i = 0; i < 5; i++) t.equal(await codeOf(pool.call(script, STEP)), 'environment_fault');
  t.equal(await codeOf((async () => pool.call(script, STEP))()), 'too_many_requests');
  t.equal(workers, 5, 'no worker was started for the call that was refused');
});

t.test('a script that throws odd values leaves its worker to the others', async t => {
  let workers = 0;
  const onWorker = () => workers++;
  process.on('worker', onWorker);
  t.teardown(() => process.off('worker', onWorker));
  const pool = new ScriptPool({ ...settings, workers: 1 });
  t.teardown(() => pool.close());
  for (const value of [
    '{ name: { toString: 1, valueOf: 1 } }',
    'Promise.resolve(1)',
    '(() => { let a = []; for (let i = 0; i < 1e3; i++) a = [a]; return a; })()',
  ]) {
    const script = scriptIn(pool, 'test/Odd-v0', withStep(`throw ${value};`));
    t.equal(await codeOf(pool.call(script, STEP)), 'environment_fault', value);
  }
  t.equal(workers, 1);
});

t.test('errors of a script name the script', async t => {
  const pool = new ScriptPool(settings);
  t.teardown(() => pool.close());
  const script = scriptIn(pool, 'test/Faulty-v0', withStep('throw new Error("no luck");'));
  await t.rejects(pool.call(script, STEP), {
    code: 'environment_fault',
    message: /^test\/Faulty-v0: Error: no luck \(in step, line 1, column \d+\)$/,
  });
});

t.test('more scripts than a worker caches still run', async t => {
  const pool = new ScriptPool({ ...settings, workers: 1 });
  t.teardown(() => pool.close());
  const scripts = Array.from({ length: 20 }, (_, i) =>
    scriptIn(pool, `test/S${i}-v0`, counting.replace('s.n + 1', `s.n + ${i}`)),
  );
  for (let round = 0; round < 2; round++) {
    const answers = await Promise.all(scripts.map(script => pool.call(script, STEP)));
    t.same(
      answers.map(text => text.split('\n')[0]),
      scripts.map((_, i) => `{"n":${1 + i}}`),
    );
  }
});

t.test('a state or result outside the limits of JSON is a fault with pointer and limit', async t => {
  const pool = new ScriptPool({ ...settings, valueBytes: 5000, outputLength: 200_000 });
  t.teardown(() => pool.close());
  const nest = (levels: number) => `let o = {}; for (let i = 1; i < ${levels}; i++) o = { o };`;
  const hostile: { [name: string]: [body: string, message: RegExp] } = {
    'an info of 1,000 levels': [
      `${nest(1000)} return { state, info: o };`,
      /\/info\/o.* more than 64 levels/,
    ],
    'an info of 6,500 levels': [
      `${nest(6500)} return { state, info: o };`,
      /\/info\/o.* more than 64 levels/,
    ],
    'a state of 65 levels': [`${nest(65)} return { state: o };`, /\/state\/o.* more than 64 levels/],
    'a large state': ['return { state: "x".repeat(6000) };', /\/state has more than 5000 bytes/],
    'a large member of info': ['return { state, info: { x: "ü".repeat(3000) } };', /\/info\/x .*5000 bytes/],
    __proto__: ['return { state, info: JSON.parse(`{"__proto__":1}`) };', /\/info\/__proto__ has a key/],
  };
  for (const [name, [body, message]] of Object.entries(hostile)) {
    const script = scriptIn(pool, 'test/Hostile-v0', withStep(body));
    await t.rejects(pool.call(script, STEP), { code: 'environment_fault', message }, name);
  }
  const fine = scriptIn(pool, 'test/Fine-v0', withStep(`${nest(64)} return { state, info: o };`));
  t.match(await pool.call(fine, STEP), /^\{"n":1\}\n/);
  const halves = scriptIn(pool, 'test/Half-v0', withStep('return { state: "🧊"[0], info: { x: "🧊"[1] } };'));
  t.match(await pool.call(halves, STEP), /^"\uFFFD"\n.*"x":"\uFFFD"/);
});

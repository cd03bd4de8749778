import t from 'tap';
import { Random } from '../../../shared/random.ts';
import {
  compileEngine,
  LimitReached,
  loadEngine,
  Sandbox,
  ScriptFault,
  type ScriptLimit,
  type ScriptLimits,
} from './sandbox.ts';

const LIMITS: ScriptLimits = {
  timeMs: 300,
  memoryBytes: 16 * 1024 * 1024,
  outputLength: 10_000,
  valueBytes: 100_000,
};
/** On a busy machine memory fills slowly. */
const PATIENT: ScriptLimits = { ...LIMITS, timeMs: 20_000, memoryBytes: 8 * 1024 * 1024 };
const engine = await loadEngine(compileEngine());

/** Answer of a sandbox with this body of `step`. */
function step(
  body: string,
  request: object = {},
  limits = LIMITS,
): { state: string; result: { [key: string]: unknown } } {
  const sandbox = new Sandbox(engine, `${MINIMAL} function step(state, action, rng) { ${body} }`, limits);
  try {
    const text = sandbox.call(
      JSON.stringify({ op: 'step', state: { n: 1 }, action: 'go', rng: [1, 2, 3, 4], ...request }),
    );
    const end = text.indexOf('\n');
    return { state: text.slice(0, end), result: JSON.parse(text.slice(end + 1)) };
  } finally {
    sandbox.dispose();
  }
}

const MINIMAL =
  'function reset() { return { n: 0 }; } function observe(state) { return JSON.stringify(state); }';

t.test('a step gives state, result, observation and the generator after it', async t => {
  const { state, result } = step(
    'return { state: { n: state.n + 1 }, reward: rng.float(), terminated: action === "go", info: { a: 1 } };',
  );
  const rng = Random.fromState([1, 2, 3, 4]);
  t.equal(state, '{"n":2}');
  t.same(result, { reward: rng.float(), terminated: true, info: { a: 1 }, seen: '{"n":2}', rng: rng.state });
});

t.test('the generator draws exactly what the server would draw', async t => {
  const draws =
    '[rng.uint32(), rng.float(), rng.integer(10), rng.chance(0.5), rng.choice([1,2,3]), rng.weighted([1,0,2]), rng.shuffle([1,2,3,4]), rng.normal()]';
  const { result } = step(`return { state: {}, info: { draws: ${draws} } };`);
  const rng = Random.fromState([1, 2, 3, 4]);
  t.same((result.info as { draws: unknown }).draws, [
    rng.uint32(),
    rng.float(),
    rng.integer(10),
    rng.chance(0.5),
    rng.choice([1, 2, 3]),
    rng.weighted([1, 0, 2]),
    rng.shuffle([1, 2, 3, 4]),
    rng.normal(),
  ]);
  t.same(result.rng, rng.state);
});

t.test('every call gets a separate copy of the state', async t => {
  const sandbox = new Sandbox(
    engine,
    `${MINIMAL} function step(state) { state.n++; return { state }; }`,
    LIMITS,
  );
  const request = JSON.stringify({ op: 'step', state: { n: 1 }, rng: [1, 2, 3, 4] });
  t.equal(sandbox.call(request), sandbox.call(request));
  sandbox.dispose();
});

t.test('functions may be declared as constants', async t => {
  const sandbox = new Sandbox(
    engine,
    'const reset = () => ({}); const step = s => ({ state: s }); const observe = () => "x"; const validActions = () => ["a"];',
    LIMITS,
  );
  t.equal(sandbox.hasValidActions, true);
  t.match(sandbox.call('{"op":"reset","rng":[1,2,3,4]}'), /"valid":\["a"\]/);
  sandbox.dispose();
});

t.test('a script that does not stop or grows is stopped at its limit', async t => {
  const hostile: { [name: string]: [body: string, limit: ScriptLimit] } = {
    'an endless loop': ['while (true) {}', 'time'],
    'an endless loop that catches everything': ['while (true) { try { for (;;) {} } catch {} }', 'time'],
    'a regular expression that never ends': ['/(a+)+$/.test("a".repeat(60) + "b")', 'time'],
    'an endless getter': ['const o = { get x() { for (;;) {} } }; return { state: o };', 'time'],
    'an endless toJSON': ['return { state: { toJSON() { for (;;) {} } } };', 'time'],
    'an endless proxy': ['return new Proxy({}, { get() { for (;;) {} }, has() { for (;;) {} } });', 'time'],
    'large memory': ['const all = []; for (;;) all.push(new Uint8Array(1e6));', 'memory'],
    'one large array': ['new Array(1e8).fill(0)', 'memory'],
    'an endless getter of info': ['return { state: {}, info: { get x() { for (;;) {} } } };', 'time'],
    'a proxy with endless keys': ['return { state: new Proxy({}, { ownKeys() { for (;;) {} } }) };', 'time'],
    'an endless iterator': ['const [a] = { [Symbol.iterator]() { for (;;) {} } };', 'time'],
    'a sort that never ends': ['[2, 1].sort(() => { for (;;) {} });', 'time'],
    'a replacement that never ends': ['"ab".replace(/b/, () => { for (;;) {} });', 'time'],
    'a generator that never ends': ['for (const x of (function* () { for (;;) yield 1; })()) {}', 'time'],
    'a regular expression of alternatives': ['/^(a|a)*$/.test("a".repeat(40) + "!")', 'time'],
    'doubling text': ['let t = "x"; for (;;) t = (t + t).replace("y", "z");', 'memory'],
    recursion: ['const f = () => f() + 1; f();', 'recursion'],
    'mutual recursion through JSON': [
      'const o = { toJSON() { return JSON.stringify(o); } }; return { state: o };',
      'recursion',
    ],
    'a large state': ['return { state: { text: "x".repeat(20000) } };', 'output'],
    'a large info': ['return { state: {}, info: { text: "x".repeat(20000) } };', 'output'],
  };
  for (const [name, [body, limit]] of Object.entries(hostile)) {
    try {
      step(body, {}, limit === 'time' ? { ...LIMITS, timeMs: 100 } : PATIENT);
      t.fail(`${name} was not stopped`);
    } catch (error) {
      t.ok(error instanceof LimitReached, `${name}: ${error}`);
      t.equal((error as LimitReached).limit, limit, name);
    }
  }
});

t.test('small allocations that fill the memory are stopped, too', async t => {
  for (const fill of [
    'const m = new Map(); for (let i = 0; ; i++) m.set(i, [i]);',
    'const all = []; for (;;) all.push({ a: 1 });',
    'let all = null; for (;;) all = { all };',
  ]) {
    t.throws(() => step(fill, {}, PATIENT), { name: 'LimitReached', limit: 'memory' }, fill);
  }
});

t.test('there is no way out of the sandbox', async t => {
  const outside = [
    'process',
    'require',
    'module',
    'global',
    'Buffer',
    'fetch',
    'WebAssembly',
    'Deno',
    'Bun',
    'setTimeout',
    'queueMicrotask',
    'SharedArrayBuffer.prototype.constructor("return process")()',
    'this.constructor.constructor("return process")()',
    '(() => {}).constructor("return process")()',
    'Function("return process")()',
    '(0, eval)("process")',
    'globalThis.process.exit()',
    'Error.prepareStackTrace.call()',
    'std.loadFile("/etc/passwd")',
    'os.exec(["ls"])',
    'performance.now()',
    'new WeakRef({})',
    'Atomics.wait',
  ];
  for (const expression of outside) {
    t.throws(
      () => step(`const found = ${expression}; return { state: {}, info: { found: typeof found } };`),
      ScriptFault,
      expression,
    );
  }
  const { result } = step('return { state: {}, info: { names: Object.getOwnPropertyNames(globalThis) } };');
  const names = (result.info as { names: string[] }).names.filter(name => /^[a-z]/.test(name));
  t.same(names.sort(), [
    'decodeURI',
    'decodeURIComponent',
    'encodeURI',
    'encodeURIComponent',
    'escape',
    'eval',
    'globalThis',
    'isFinite',
    'isNaN',
    'observe',
    'parseFloat',
    'parseInt',
    'reset',
    'step',
    'undefined',
    'unescape',
  ]);
});

t.test('modules are not loaded', async t => {
  t.throws(() => new Sandbox(engine, 'import fs from "fs";', LIMITS), ScriptFault);
  const { result } = step(
    'let loaded = false; import("fs").then(() => { loaded = true; }); return { state: { loaded } };',
  );
  t.equal(result.seen, '{"loaded":false}');
});

t.test('clock and unseeded randomness are refused with what to use instead', async t => {
  t.throws(() => step('return { state: Math.random() };'), /Math.random is not available: draw from rng/);
  t.throws(() => step('return { state: new Date() };'), /Date is not available/);
  t.throws(() => step('return { state: Date.now() };'), ScriptFault);
});

t.test('errors name their line', async t => {
  t.throws(() => new Sandbox(engine, 'function reset( {', LIMITS), /SyntaxError.*line 1/);
  t.throws(() => new Sandbox(engine, 'function reset() {}', LIMITS), /reset, step, observe; step is missing/);
  t.throws(
    () => new Sandbox(engine, '\n\nthrow new Error("at once")', LIMITS),
    /Error: at once \(line 3, column 11\)/,
  );
  t.throws(() => step('\n\nthrow new TypeError("odd");'), /TypeError: odd \(in step, line 3, column 11\)/);
  t.throws(
    () => step('return state.missing.more;'),
    /TypeError: cannot read property 'more' of undefined \(in step, which begins at line 1\)/,
  );
  t.throws(() => step('\n  const a = 1;\n  state.foo();'), /not a function \(in step, line 3, column 9\)/);
  t.throws(() => step('return 5;'), /step must return \{ state, reward, terminated \}/);
  t.throws(
    () => step('return { state: undefined };'),
    /the state that step gives is undefined, not plain JSON/,
  );
  t.throws(() => step('return { state: () => 1 };'), /is function, not plain JSON/);
  t.throws(() => step('return { state: Promise.resolve(1) };'), /is a promise/);
  t.throws(() => step('const a = {}; a.a = a; return { state: a };'), /circular/);
  t.throws(() => step('return { state: 10n };'), /BigInt/);
  t.throws(() => step('throw "just text";'), /the script threw just text/);
  t.throws(() => step('throw null;'), /the script threw null/);
  t.throws(() => step('undeclared = 1;'), /undeclared/);
  const began = performance.now();
  t.throws(() => step(`const wide = "throw${' '.repeat(50_000)}"; throw null;`), /the script threw null/);
  t.ok(performance.now() - began < 2000, 'a long source is looked at once');
});

t.test('a script may throw anything: it is a fault of the script', async t => {
  const thrown: { [value: string]: RegExp } = {
    '{ name: { toString: 1, valueOf: 1 }, message: "no luck" }': /^error: no luck$/,
    '{ name: "Odd", message: { toString: 1 } }': /^Odd: \{"name":"Odd","message":\{"toString":1\}\}$/,
    'Object.assign(new Error("no luck"), { name: {} })': /^error: no luck \(in step, line 1/,
    '{ get name() { throw 1; } }': /^the script threw /,
    'new Proxy({}, { get() { throw 1; } })': /^the script threw /,
    'Promise.resolve(1)': /^the script threw a promise$/,
    'Promise.reject({})': /^the script threw a promise$/,
    'new Promise(() => {})': /^the script threw a promise$/,
    'Symbol("odd")': /^the script threw Symbol\(odd\)$/,
    '10n': /^the script threw 10$/,
    '() => 1': /^the script threw /,
  };
  for (const [value, message] of Object.entries(thrown)) {
    t.throws(() => step(`throw ${value};`), { name: 'ScriptFault', message }, value);
  }
});

t.test('a script that changes its arguments affects only itself', async t => {
  const sandbox = new Sandbox(
    engine,
    `JSON.stringify = () => 'mine'; JSON.parse = () => ({}); Array.prototype.push = null; Object.prototype.x = 1;
     Promise = null; globalThis.Random = null;
     ${MINIMAL} function step(state) { return { state: { n: state.n + 1 } }; }`,
    LIMITS,
  );
  t.match(sandbox.call('{"op":"step","state":{"n":1},"rng":[1,2,3,4]}'), /^\{"n":2\}\n/);
  sandbox.dispose();
  t.equal(({} as { x?: number }).x, undefined);
  t.equal(step('return { state: { x: ({}).x === undefined } };').state, '{"x":true}');
});

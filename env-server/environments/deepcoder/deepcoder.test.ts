import { join } from 'node:path';
import t from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import { ENVIRONMENT_SETTINGS, variableOf } from '../../config/settings.ts';
import { wrap } from '../../wrappers/wrap.ts';
import type { AnyEnvironment } from '../core/environment.ts';
import { LINES } from '../core/spaces.ts';
import { splitOf } from '../core/splits.ts';
import { DEEPCODER_DEFAULTS } from '../variables.ts';
import { deepCoder, isSameOutput, isSameValue, programOf, stopSandboxes } from './deepcoder.ts';
import { findIsolation } from './sandbox/isolation.ts';
import { SandboxPool } from './sandbox/pool.ts';
import { SandboxFailed } from './sandbox/sandbox.ts';
import { readTask, TASKS } from './tasks.ts';

const play = playing(deepCoder);

t.test('statements of built-in tasks are members of the observation space', async t => {
  for (const { statement } of TASKS) {
    t.same(
      [...statement].filter(character => !LINES.includes(character)),
      [],
      statement,
    );
  }
});
const SUM = {
  statement: 'Add.',
  tests: [
    { input: '1 2\n', output: '3\n' },
    { input: '5 5\n', output: '10\n' },
  ],
};

const isolated = await findIsolation().then(
  () => true,
  (error: unknown) => {
    if (error instanceof SandboxFailed) return false;
    throw error;
  },
);
const skip = !isolated && 'no isolation on this machine';
t.teardown(() => stopSandboxes());

t.test('printed and returned values are compared as said', async t => {
  const prints = (printed: string, wanted: string) => isSameOutput(Buffer.from(printed), wanted);
  t.equal(prints('1 2 \n3\n\n', '1 2\n3\n'), true);
  t.equal(prints('1\n2', '1 2'), true, 'line breaks between the same words');
  t.equal(prints('0.3333333', '0.33333334'), true);
  t.equal(prints('0.33', '0.34'), false);
  t.equal(prints('10', '11'), false);
  t.equal(prints('', '1'), false);
  t.equal(prints('nan', '1.5'), false);
  t.equal(prints('  \n', ''), true);
  t.equal(prints('', ''), true);
  t.equal(prints('\n1', '1'), false);
  t.equal(prints('1 2', '1'), false);
  t.equal(prints('1', '1 2'), false);
  t.equal(prints('1 \t\n 2.0000001\r\n', '1\n 2.0'), true);
  t.equal(isSameValue([1, { a: [0.1 + 0.2] }], [1, { a: [0.3] }]), true);
  t.equal(isSameValue([1], [1, 2]), false);
  t.equal(isSameValue({ a: 1 }, { a: 1, b: 2 }), false);
  t.equal(isSameValue(true, 1), false);
  t.equal(isSameValue('1', 1), false);
  t.equal(isSameValue(null, null), true);
});

t.test('printed texts are compared piece by piece, wherever a piece ends', async t => {
  const words = 'ein Wörtchen – 0.25 '.repeat(20_000);
  for (const shift of [0, 1, 2, 3, 4, 5, 6]) {
    const text = 'x'.repeat(shift) + words;
    t.ok(isSameOutput(Buffer.from(text), text), `${shift}`);
    t.notOk(isSameOutput(Buffer.from(text), `${text}x`), `${shift}: one word is missing`);
    t.notOk(isSameOutput(Buffer.from(`${text}x`), text), `${shift}: one word too many`);
  }
  const long = 'a'.repeat(300_000);
  const digits = '7'.repeat(200_000);
  const began = performance.now();
  t.notOk(isSameOutput(Buffer.from(`${digits}x`), `${digits}.y`), 'a text of digits is looked at once');
  t.notOk(isSameOutput(Buffer.from(`${digits}.10`), `${digits}.1`), 'a number has an end');
  t.ok(performance.now() - began < 2000);
  t.ok(isSameOutput(Buffer.from(`${long} ${long}\n`), `${long}\n${long}`), 'words longer than a piece');
  t.notOk(isSameOutput(Buffer.from(long), long.slice(1)));
  const spaces = ' '.repeat(300_000);
  t.ok(isSameOutput(Buffer.from(`${spaces}1${spaces}`), ' 1'), 'white space alone in a piece');
  t.notOk(isSameOutput(Buffer.from(`${spaces}1`), '1'), 'white space before the first word counts');
  t.notOk(isSameOutput(Buffer.from(`0.${'0'.repeat(300_000)}`), '0.0'), 'a number of very many digits');
  t.notOk(isSameOutput(Buffer.from([0x31, 0xc3]), '1'), 'half a character');
});

t.test('the program is taken out of its code block', async t => {
  t.equal(programOf('Some words\n```python\nprint(1)\n```\nand\n```\nprint(2)\n```'), 'print(2)\n');
  t.equal(programOf('print(3)'), 'print(3)');
});

t.test('the description names the isolation in force, of wrapped environments too', async t => {
  for (const environment of [deepCoder, wrap(deepCoder as AnyEnvironment, [{ name: 'record' }])]) {
    const { summary, isolated: inForce, isolation } = await environment.condition!();
    t.equal(inForce, isolated);
    t.match(summary, isolated ? /^programs run isolated by .*seccomp/ : /^(no program is|programs) run/);
    if (isolated) t.ok((isolation as string[]).every(wall => summary.includes(wall)));
  }
});

t.test('wrapped environments are played for an owner too', async t => {
  const wrapped = wrap(deepCoder as AnyEnvironment, [{ name: 'record' }, { name: 'auto_reset' }]);
  t.equal(
    wrapped.playFor?.('somebody', () => 7),
    7,
  );
});

t.test('the solutions of all shipped tasks pass their tests', { skip }, async t => {
  t.equal(TASKS.length, 50);
  t.equal(new Set(TASKS.map(task => task.name)).size, 50);
  for (const { name } of TASKS) {
    const { success, result } = await play.finish(await play.reset({}, { name }), 'oracle', 1);
    t.ok(success, `${name}: ${result?.info.failure || 'passes'}`);
  }
});

t.test('the reward is the share of passed tests', { skip }, async t => {
  const state = await play.reset({}, SUM);
  const answers: [string, number, string, string, number[]][] = [
    ['a, b = map(int, input().split())\nprint(a + b)', 1, '', 'all_tests_passed', []],
    ['input(); print(3)', 0.5, 'wrong output', 'some_tests_passed', [2]],
    ['print(1 / 0)', 0, 'ended with an error', 'no_tests_passed', [1, 2]],
  ];
  for (const [program, reward, failure, end, failed] of answers) {
    const result = await play.step(state, program);
    t.match(result, {
      reward,
      terminated: true,
      info: { success: reward === 1, failure, total: 2, ended_by: end, failed_tests: failed },
    });
    t.same(result.info.rewards, { tests: reward, all_tests: Math.floor(reward) });
  }
  for (const action of ['', '  \n', null, 7, '```python\n```']) {
    t.match(await play.step(state, action), {
      reward: 0,
      terminated: false,
      info: { action_is_valid: false, rewards: { tests: 0, all_tests: 0 } },
    });
  }
  const over = await play.step(state, 'print(3)');
  t.match(play.text(over.state), /1 of 2 tests passed\.\nwrong output$/);
  t.match(await play.step(over.state, 'print(3)'), {
    reward: 0,
    terminated: true,
    info: { rewards: { tests: 0, all_tests: 0 } },
  });
});

/** Programs that try to show their input to the player through `failure`. `s` is the input, `e` encodes it in a number. */
const TELLTALES: readonly string[] = [
  'raise ValueError(s)',
  'raise type(s, (Exception,), {})',
  'raise SyntaxError(s)',
  'raise SystemExit(s)',
  'raise SystemExit(98)',
  'exec(compile(s + " (", s, "exec"))',
  'os.write(2, s.encode()); os._exit(1)',
  'os.write(2, s.encode()); os._exit(98)',
  'os.write(2, s.encode()); print(s)',
  'os._exit(e % 200)',
  'raise [KeyError, IndexError, OSError, TypeError][e % 4]',
  'os.kill(os.getpid(), [6, 11, 15, 24][e % 4])',
  'import resource; os.write(2, s.encode()); resource.setrlimit(resource.RLIMIT_CPU, (0, 0))\nwhile True: pass',
  'os.write(2, s.encode()); sys.stdout.write("x" * 10_000_000)',
  'for end in range(64):\n    try: os.write(end, s.encode() + b"\\n")\n    except OSError: pass\nos._exit(1)',
  'for end in range(3, 64):\n    try: os.write(end, b\'{"status": "invalid", "error": "\' + s.encode() + b\'", "bytes": 0}\\n\')\n    except OSError: pass\nos._exit(98)',
  'sys.excepthook = lambda *a: os.write(2, s.encode())\nraise ValueError',
];

t.test('a failure shows nothing of the input of a test', { skip }, async t => {
  const limits = { cpu_s: 20, wall_s: 60, total_s: 60 };
  const failureFor = async (program: string, entry?: string) => {
    const failures: string[] = [];
    for (const secret of ['hidden-one', 'hidden-other']) {
      const test: JsonObject = entry ? { arguments: [secret], result: 1 } : { input: secret, output: '1' };
      const options = { statement: 'Attack.', tests: [test, test], ...(entry && { entry }) };
      const { info } = await play.step(await play.reset(limits, options), program);
      failures.push(String(info?.failure));
    }
    return failures;
  };
  const begin = 'import os, sys\n';
  for (const attack of TELLTALES) {
    const asked = `e = sum(map(ord, s))\n${attack}`;
    const indented = asked.replaceAll('\n', '\n    ');
    for (const [first, second] of [
      await failureFor(`${begin}s = sys.stdin.read()\n${asked}`),
      await failureFor(`${begin}def f(s):\n    ${indented}`, 'f'),
    ]) {
      t.equal(first, second, attack);
      t.match(
        first,
        /^(?:ended with an error|out of time|printed too much|wrong output|wrong result|returned a value that is not JSON)$/,
        attack,
      );
    }
  }
  t.same(
    await failureFor('print(input()'),
    Array(2).fill("SyntaxError: '(' was never closed (program.py, line 1)"),
  );
});

t.test('programs of many sessions run side by side', { skip }, async t => {
  const pool = new SandboxPool({ slots: 2, guestSlots: 0, queueLength: 100, queueSeconds: 600 });
  t.teardown(() => pool.stop());
  const limits = { cpu_s: 30, wall_s: 60, total_s: 120, memory_mb: 128, output_bytes: 1000 };
  const all = await Promise.all(
    Array.from({ length: 12 }, (_, n) =>
      pool.run(
        { ...limits, program: `print(int(input()) + ${n})`, function: null, inputs: ['100\n'] },
        `owner ${n % 3}`,
        ({ output }) => output.toString(),
      ),
    ),
  );
  t.same(
    all.flat(),
    Array.from({ length: 12 }, (_, n) => `${100 + n}\n`),
  );
});

t.test('records of the public data are read', async t => {
  const problem = 'Do it.';
  const taco = readTask({
    problem,
    tests: JSON.stringify({ inputs: ['1\n', ['2', '3']], outputs: ['1\n', '5'] }),
    solutions: ['print(1)'],
  });
  t.match(taco, { statement: problem, entry: null, solution: 'print(1)' });
  t.same(taco.tests, [
    { kind: 'stdin', input: '1\n', output: '1\n' },
    { kind: 'stdin', input: '2\n3', output: '5' },
  ]);
  const named = readTask({ problem, tests: { fn_name: 'f', inputs: [[1, 2]], outputs: [[3]] } });
  t.match(named, { entry: 'f', tests: [{ kind: 'call', arguments: [1, 2], result: 3 }] });
  const livecode = readTask({
    problem,
    starter_code: 'class Solution:',
    metadata: '{"func_name":"shift"}',
    tests: JSON.stringify([{ input: '"ab"\n[1, 2]', output: '4', testtype: 'functional' }]),
  });
  t.match(livecode, { entry: 'shift', tests: [{ kind: 'call', arguments: ['ab', [1, 2]], result: 4 }] });
  const plain = readTask({
    question: problem,
    ground_truth: [{ input: '1', output: '2', testtype: 'stdin_stdout', metadata: { func_name: null } }],
  });
  t.match(plain, { entry: null, tests: [{ kind: 'stdin', input: '1', output: '2' }] });
  const prime = readTask({
    problem,
    tests: JSON.stringify([
      { type: 'function_call', fn_name: 'add', input: [1, [2]], output: [3] },
      { type: 'function_call', fn_name: 'add', input: ['a'], output: 'ab' },
    ]),
  });
  t.match(prime, { entry: 'add' });
  t.same(prime.tests, [
    { kind: 'call', arguments: [1, [2]], result: 3 },
    { kind: 'call', arguments: ['a'], result: 'ab' },
  ]);
  const read = readTask({ problem, tests: [{ type: 'stdin_stdout', input: '1\n', output: '1\n' }] });
  t.same(read.tests, [{ kind: 'stdin', input: '1\n', output: '1\n' }]);
  const wrong: [JsonObject, string][] = [
    [{ problem, tests: [{ type: 'function_call', input: [1], output: [1] }] }, 'tests[0]'],
    [{ tests: [] }, 'problem'],
    [{ problem }, 'tests'],
    [{ problem, tests: '{' }, 'tests'],
    [{ problem, tests: [] }, 'tests'],
    [{ problem, tests: [{ input: '1' }] }, 'tests[0]'],
    [{ problem, tests: { inputs: ['1'], outputs: [] } }, 'tests'],
    [{ problem, tests: { fn_name: 'f', inputs: ['1'], outputs: ['1'] } }, 'tests.inputs[0]'],
    [
      { problem, metadata: { func_name: 'f' }, tests: [{ input: 'x', output: '1', testtype: 'functional' }] },
      'tests[0].input',
    ],
  ];
  for (const [record, field] of wrong) t.throws(() => readTask(record), { name: 'InvalidField', field });
});

t.test('tasks come from a file or by name; what is not a task is refused', { skip }, async t => {
  const folder = t.testdir({
    'data.jsonl': JSON.stringify({ problem: 'Do.', tests: SUM.tests }),
    'bad.jsonl': '{"problem":"Do."}',
  });
  t.equal((await play.reset({ data: join(folder, 'data.jsonl') }, { index: 0 })).task.statement, 'Do.');
  await t.rejects(play.reset({ data: join(folder, 'bad.jsonl') }), { message: /row 1: field tests/ });
  const wrong: [JsonObject, string][] = [
    [{ statement: 'x' }, '/tests'],
    [{ tests: SUM.tests }, '/statement'],
    [{ ...SUM, entry: 'f' }, '/tests/0'],
    [{ statement: 'x', tests: [{ arguments: [1], result: 1 }] }, '/tests/0'],
    [{ entry: 'f' }, '/entry'],
    [{ index: 50 }, '/index'],
  ];
  for (const [options, pointer] of wrong)
    await t.rejects(play.reset({}, options), { name: 'InvalidOptions', pointer });
  for (const split of ['train', 'validation', 'test'] as const) {
    t.equal(splitOf((await play.reset({ split })).task.statement), split);
  }
});

t.test('a player cannot set more than the operator allows', { skip }, async t => {
  const above: [config: JsonObject, most: number, variable: string][] = [
    [{ cpu_s: 31 }, 30, 'RAGEN_DEEPCODER_MAX_CPU_SECONDS'],
    [{ wall_s: 60.5 }, 60, 'RAGEN_DEEPCODER_MAX_WALL_SECONDS'],
    [{ total_s: 21 }, 20, 'RAGEN_DEEPCODER_MAX_TOTAL_SECONDS'],
    [{ memory_mb: 2048 }, 1024, 'RAGEN_DEEPCODER_MAX_MEMORY_MB'],
    [{ output_bytes: 60_000_000 }, 4_000_000, 'RAGEN_DEEPCODER_MAX_OUTPUT_BYTES'],
  ];
  t.intercept(process, 'env', {
    value: {
      ...process.env,
      RAGEN_DEEPCODER_MAX_TOTAL_SECONDS: '20',
      RAGEN_DEEPCODER_MAX_TESTS: '3',
    },
  });
  for (const [config, most, variable] of above) {
    const [[limit, value]] = Object.entries(config);
    t.throws(() => play.config(config), {
      name: 'InvalidConfig',
      pointer: `/${limit}`,
      message: `${limit} is ${value}; the ceiling of this server is ${most}, which its operator sets with ${variable}`,
    });
  }
  await t.rejects(play.reset({}, { statement: 'x', tests: Array(4).fill(SUM.tests[0]) }), {
    name: 'InvalidOptions',
    pointer: '/tests',
    message:
      /there are 4 tests; the ceiling of this server is 3, which its operator sets with RAGEN_DEEPCODER_MAX_TESTS/,
  });
  t.match(
    await play.reset({ cpu_s: 30 }, SUM),
    { limits: { cpu_s: 30, total_s: 20 } },
    'a default is cut down',
  );
  const { ceilings } = await deepCoder.condition();
  t.match(ceilings, {
    cpu_s: 30,
    wall_s: 60,
    total_s: 20,
    memory_mb: 1024,
    output_bytes: 4_000_000,
    tests: 3,
  });
});

t.test('every variable that bounds programs is a setting of the server', async t => {
  const settings = Object.keys(ENVIRONMENT_SETTINGS).map(variableOf);
  for (const variable of Object.keys(DEEPCODER_DEFAULTS)) t.ok(settings.includes(variable), variable);
});

t.test('values of tests that are nested too deep are refused before any harness reads them', async t => {
  let deep: Json = 1;
  for (let level = 0; level < 70; level++) deep = [deep];
  for (const [key, test] of [
    ['arguments', { arguments: [deep], result: 1 }],
    ['result', { arguments: [1], result: deep }],
  ] as const) {
    await t.rejects(play.reset({}, { statement: 'x', entry: 'f', tests: [test] }), {
      name: 'InvalidOptions',
      pointer: `/tests/0/${key}`,
      message: 'is nested deeper than 64 levels',
    });
  }
  const record = { problem: 'x', tests: [{ type: 'function_call', fn_name: 'f', input: [deep], output: 1 }] };
  t.throws(() => readTask(record), { name: 'InvalidField', field: 'tests' });
});

t.test('keeps the contract', { skip }, async t => checkContract(t, deepCoder, { episodes: 2, steps: 3 }));

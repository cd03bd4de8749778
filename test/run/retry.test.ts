import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { readOutcomes } from './outcome.ts';

t.setTimeout(900_000);

const TAPRC = `
include: ['*/*.test.ts']
plugin: ['!@tapjs/typescript']
allow-incomplete-coverage: true
disable-coverage: true
jobs: 3
`;
const PASSES = "import t from 'tap';\nt.test('passes', async t => {\n  t.ok(true);\n});\n";
/** A file that has something cleared away when its process ends, and one that takes long to load. */
const CLEARS = `${PASSES}t.teardown(() => {});\n`;
const LOADS = `import { setTimeout } from 'node:timers/promises';\nawait setTimeout(200);\n${PASSES}`;
/** A test file that does something when it runs for the first time, and passes after that. */
const first = (what: string) => `
import { existsSync, writeFileSync } from 'node:fs';
import t from 'tap';
t.test('fails first', async t => {
  const seen = new URL('seen', import.meta.url);
  const first = !existsSync(seen);
  writeFileSync(seen, '');
  if (first) ${what};
  t.ok(true);
});
`;

/** Runs the tests of a folder as `.ci/run` does. */
function runTests(
  t: Test,
  folders: { readonly [name: string]: { readonly [file: string]: string } },
  named: readonly string[] = [],
) {
  const cwd = t.testdir({ 'package.json': '{ "type": "module" }', '.taprc': TAPRC, ...folders });
  const main = join(import.meta.dirname, 'main.ts');
  // The variables that this test's own tap sets for its children would confuse another tap.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^_?TAP/.test(name)));
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, '--retry', ...named], {
    cwd,
    env: { ...env, TAP_REPORTER: 'tap' },
    encoding: 'utf8',
  });
  const lines = stdout.split('\n');
  return {
    status,
    stderr,
    recorded: existsSync(join(cwd, '.tap/processinfo')),
    said: lines.slice(lines.findIndex(line => line.startsWith('second run of what failed:'))),
  };
}

t.test(
  'a group that fails, or crashes, once and passes alone is named, and does not fail the run',
  async t => {
    const { status, said } = runTests(t, {
      fails: { 'a.test.ts': first('t.fail()'), 'b.test.ts': PASSES },
      crashes: { 'a.test.ts': PASSES, 'b.test.ts': first("process.kill(process.pid, 'SIGKILL')") },
      passes: { 'a.test.ts': CLEARS, 'b.test.ts': LOADS },
    });
    t.equal(status, 0);
    t.equal(said[0], 'second run of what failed: crashes/b.test.ts fails/a.test.ts');
    t.same(said.slice(-4), [
      'flaky: crashes/b.test.ts failed once and passed alone',
      'flaky: fails/a.test.ts failed once and passed alone',
      // An assertion of each test; two after each file, by the runner.
      '# { total: 18, pass: 18 }',
      '',
    ]);
  },
);

t.test('a group that fails twice fails the run', async t => {
  const { status, said, recorded } = runTests(t, {
    fails: { 'a.test.ts': PASSES, 'b.test.ts': PASSES.replace('true', 'false') },
  });
  t.equal(status, 1);
  t.notOk(recorded, 'tap records no module that a process loads');
  t.same(said.slice(-3), [
    'broken: fails/b.test.ts failed alone, too',
    '# { total: 6, pass: 5, fail: 1 }',
    '',
  ]);
});

t.test('a named file that is missing ends the run with its name, and no stack', async t => {
  const { status, stderr } = runTests(t, { a: { 'a.test.ts': PASSES } }, ['a/a.test.ts', 'a/b.test.ts']);
  t.equal(status, 1);
  t.match(stderr, /^there is no test file a\/b\.test\.ts in \S+\n$/);
});

t.test('results name the failed files of a group, and the time of each file', async t => {
  const tap = `TAP version 14
    not ok 1 - an assertion
not ok 1 - a test # time=1500.5ms
ok 2 - a.test.ts # time=500ms
ok 3 - a test that waits for a machine # SKIP none
ok 4 - b.test.ts # time=1ms
not ok 5 - timeout! # time=2000ms`;
  t.same(readOutcomes(tap, ['a.test.ts', 'b.test.ts', 'c.test.ts', 'd.test.ts']), [
    { file: 'a.test.ts', failed: true, seconds: 2.0005 },
    { file: 'b.test.ts', failed: false, seconds: 0.001 },
    { file: 'c.test.ts', failed: true, seconds: 2 },
  ]);
  t.same(readOutcomes('', ['a.test.ts']), [{ file: 'a.test.ts', failed: true, seconds: 0 }]);
});

import { chmodSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { playing } from '../contract.test-data.ts';
import { deepCoder, stopSandboxes } from './deepcoder.ts';
import { findIsolation, PYTHON_VARIABLE, UNISOLATED_VARIABLE } from './sandbox.ts';

const { [PYTHON_VARIABLE]: python, [UNISOLATED_VARIABLE]: unisolated } = process.env;
const TASK = { statement: 'Say yes.', tests: [{ input: '', output: 'yes\n' }] };

/** An interpreter under which only these walls stand, however it is started; every test of a job prints `yes`. */
function interpreter(folder: string, walls: readonly string[]): string {
  const script = `#!/bin/sh
if [ "$1" = -c ]; then echo "$0"; exit; fi
echo '${JSON.stringify({ walls })}'
while read -r job; do printf '%s\\n' '{"results":[{"status":"ok","output":"yes\\n","error":""}]}'; done
`;
  const path = join(t.testdir({ [folder]: { python: script } }), folder, 'python');
  chmodSync(path, 0o755);
  return path;
}

t.beforeEach(() => {
  delete process.env[UNISOLATED_VARIABLE];
});
t.teardown(() => {
  stopSandboxes();
  for (const [name, value] of [
    [PYTHON_VARIABLE, python] as const,
    [UNISOLATED_VARIABLE, unisolated] as const,
  ]) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
});

t.test('without Python no program is run, and it is said why', async t => {
  process.env[PYTHON_VARIABLE] = '/nowhere/python';
  await t.rejects(findIsolation(), {
    name: 'SandboxFailed',
    message: /need Python: \/nowhere\/python does not run/,
  });
  t.match(await deepCoder.condition(), { isolated: false, summary: /^no program is run: / });
});

t.test('without isolation no program is run unless the operator says so', async t => {
  process.env[PYTHON_VARIABLE] = interpreter('bare', ['rlimits', 'nobody']);
  const refusal =
    /no isolation for untrusted programs \(only rlimits, nobody\); .*RAGEN_DEEPCODER_UNISOLATED=1/;
  await t.rejects(findIsolation(), { name: 'SandboxFailed', message: refusal });
  t.match(await deepCoder.condition(), { isolated: false, isolation: [], summary: /^no program is run: / });
  const play = playing(deepCoder);
  await t.rejects(play.reset({}, TASK), { name: 'InvalidConfig', message: refusal });
  for (const value of ['0', 'yes', '']) {
    process.env[UNISOLATED_VARIABLE] = value;
    await t.rejects(findIsolation(), { message: refusal }, `"${value}" is no leave`);
  }

  process.env[UNISOLATED_VARIABLE] = '1';
  t.match(await deepCoder.condition(), {
    isolated: false,
    isolation: ['rlimits', 'nobody'],
    summary: /^programs run WITHOUT isolation, as RAGEN_DEEPCODER_UNISOLATED=1 allows; only rlimits, nobody$/,
  });
  const { info } = await play.step(await play.reset({}, TASK), 'print("yes")');
  t.match(info, { success: true, isolation: ['rlimits', 'nobody'] });
});

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';

const LOGGER = join(import.meta.dirname, 'log-output.test-data.ts');

function start(t: Test, output: 'pipe' | number = 'pipe'): ChildProcess {
  const child = fork(LOGGER, { stdio: ['ignore', output, 'inherit', 'ipc'] });
  t.teardown(() => child.kill('SIGKILL'));
  return child;
}

async function logOnce(child: ChildProcess): Promise<void> {
  child.send('log');
  await once(child, 'message');
}

t.test('a reader that pauses delays nobody, and reads how much it missed', async t => {
  const child = start(t);
  // Nobody reads yet: 64 KiB fill the pipe.
  await logOnce(child);
  await logOnce(child);
  let output = '';
  let kept = 0;
  for await (const chunk of child.stdout!.setEncoding('utf8')) {
    output += chunk;
    kept = output.match(/"msg":"x{1024}"/g)?.length ?? 0;
    const dropped = [...output.matchAll(/"msg":"the log lacks (\d+) lines? here: nobody read them"/g)];
    if (kept + dropped.reduce((sum, [, count]) => sum + Number(count), 0) === 2 ** 13) break;
  }
  t.ok(kept > 2 ** 9 && kept < 2 ** 11, `${kept} lines were kept`);
});

t.test('a process outlives the reader of its output', async t => {
  const child = start(t);
  await once(child.stdout!, 'data');
  child.stdout!.destroy();
  for (let turn = 0; turn < 3; turn++) await logOnce(child);
  child.disconnect();
  const [status] = await once(child, 'exit');
  t.equal(status, 0);
});

const FULL = '/dev/full';
const skip = existsSync(FULL) ? false : `there is no ${FULL}`;
t.test('a process outlives a full disk under its output', { skip }, async t => {
  const file = openSync(FULL, 'w');
  t.teardown(() => closeSync(file));
  const child = start(t, file);
  await logOnce(child);
  child.disconnect();
  const [status] = await once(child, 'exit');
  t.equal(status, 0);
});

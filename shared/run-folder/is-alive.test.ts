import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { isAlive, processStart } from './is-alive.ts';

const PROC = existsSync('/proc/self/stat');

t.test('a process is alive until it ends', async t => {
  const other = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
  t.teardown(() => other.kill('SIGKILL'));
  const { pid } = other;
  const start = processStart(pid!);
  t.ok(isAlive(pid!));
  t.ok(isAlive(pid!, start));
  other.kill('SIGKILL');
  await once(other, 'exit');
  t.notOk(isAlive(pid!));
  t.notOk(isAlive(pid!, start));
  t.equal(processStart(pid!), null);
});

t.test(
  `a later process with the same number is another${PROC ? '' : ': no /proc here'}`,
  { skip: !PROC },
  async t => {
    const start = processStart(process.pid);
    t.match(start, /^\d+$/);
    t.ok(isAlive(process.pid, start));
    t.notOk(isAlive(process.pid, String(Number(start) - 1)));
  },
);

t.test(`a process that ended unnoticed is dead${PROC ? '' : ': no /proc here'}`, { skip: !PROC }, async t => {
  // A shell may reap its ended child; `cat`, which replaces the shell, never does.
  const parent = spawn('sh', ['-c', 'sleep 60 & echo $!; exec cat']);
  t.teardown(() => parent.kill('SIGKILL'));
  const [line] = (await once(parent.stdout, 'data')) as [Buffer];
  const child = Number(String(line));
  t.ok(isAlive(child));
  parent.stdin.write('cat runs');
  await once(parent.stdout, 'data');
  process.kill(child, 'SIGKILL');
  while (isAlive(child)) await sleep(10);
  process.kill(child, 0);
  t.pass('the system still knows its number');
});

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { processStart } from '../../../shared/dashboard/is-alive.ts';
import { refuseRunning } from './refuse-running.ts';

t.test('a run that another living process trains is refused, and no other', async t => {
  const path = t.testdir();
  const run = { path, status: join(path, 'status.json') };
  const other = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
  t.teardown(() => other.kill('SIGKILL'));
  const tell = (status: object) => {
    const usual = {
      state: 'running',
      host: hostname(),
      pid: other.pid,
      updated_at: new Date().toISOString(),
    };
    writeFileSync(run.status, JSON.stringify({ ...usual, ...status }));
  };
  t.doesNotThrow(() => refuseRunning(run), 'without a status');
  tell({});
  t.throws(() => refuseRunning(run), new RegExp(`process ${other.pid} is training the run in`));
  for (const status of [
    { state: 'stopped' },
    { host: 'elsewhere' },
    { pid: process.pid },
    { updated_at: new Date(Date.now() - 60_000).toISOString() },
  ]) {
    tell(status);
    t.doesNotThrow(() => refuseRunning(run), JSON.stringify(status));
  }
  const start = processStart(other.pid!);
  if (start !== null) {
    tell({ pid_start: start, updated_at: new Date(Date.now() - 60_000).toISOString() });
    t.throws(
      () => refuseRunning(run),
      /is training the run in/,
      'silent, as one that was stopped for a while',
    );
    tell({ pid_start: '1' });
    t.doesNotThrow(() => refuseRunning(run), 'the number is that of another process');
  }
  writeFileSync(run.status, '{');
  t.doesNotThrow(() => refuseRunning(run), 'half a status');
  tell({});
  other.kill('SIGKILL');
  await once(other, 'exit');
  t.doesNotThrow(() => refuseRunning(run), 'the process is gone');
});

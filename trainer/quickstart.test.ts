import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { until } from '../test/until.test-data.ts';

/** A quickstart with the process id of its trainer, once that has a run folder. */
async function quickstart(t: Test) {
  const folder = t.testdir();
  const program = spawn(process.execPath, [join(import.meta.dirname, 'quickstart.ts'), '--exit'], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let errors = '';
  program.stderr.on('data', text => {
    errors += text;
  });
  program.stdout.resume();
  const ended = new Promise<number | null>(resolve => program.once('close', resolve));
  t.teardown(() => program.kill());
  const trainerPid = () => {
    try {
      const path = join(folder, 'runs/quickstart-001/status.json');
      return (JSON.parse(readFileSync(path, 'utf8')) as { pid: number }).pid;
    } catch {
      return undefined;
    }
  };
  await until(() => trainerPid() !== undefined);
  return { program, ended, trainer: trainerPid() ?? 0, errors: () => errors };
}

t.test('npm start reports a trainer that is killed, and how to continue', async t => {
  const { trainer, ended, errors } = await quickstart(t);
  process.kill(trainer, 'SIGKILL');
  t.equal(await ended, 143);
  t.match(errors(), /The trainer was killed.* To continue the run: npm start\n/);
});

t.test('Ctrl-C that a terminal and npm both pass on stops npm start in order', async t => {
  const { program, ended, errors } = await quickstart(t);
  // Both are pending when the program continues.
  program.kill('SIGSTOP');
  program.kill('SIGINT');
  program.kill('SIGTERM');
  program.kill('SIGCONT');
  t.equal(await ended, 130);
  t.match(errors(), /stopping/);
});

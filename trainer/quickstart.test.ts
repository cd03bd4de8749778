import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { until } from '../test/until.test-data.ts';

t.test('npm start reports a trainer that is killed, and how to continue', async t => {
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
  process.kill(trainerPid() ?? 0, 'SIGKILL');
  t.equal(await ended, 143);
  t.match(errors, /The trainer was killed.* To continue the run: npm start\n/);
});

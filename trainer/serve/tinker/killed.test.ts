import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { lacksPython, PYTHON, PYTHON_MS } from '../../../test/python.test-data.ts';
import { serveInProcess } from '../process.test-data.ts';
import { FOLDER } from './tinker.test-data.ts';

t.setTimeout(PYTHON_MS);
const missing = lacksPython('tinker', 'torch');
const skip = missing && `${missing}: pip install torch==2.13.0 tinker==0.38.0`;
const PROGRAM = fileURLToPath(new URL('killed.test-data.py', import.meta.url));

t.test(
  'the SDK says that its model is gone after a kill of the server, and resumes from a checkpoint',
  { skip },
  async t => {
    const checkpoints = t.testdir();
    const start = (port: string) =>
      serveInProcess(t, FOLDER, ['--tinker', '--checkpoints', checkpoints, '--workers', '1', '--port', port]);
    const { url, process } = await start('0');
    const child = spawn(PYTHON, [PROGRAM, url, FOLDER], { stdio: ['pipe', 'pipe', 'inherit'] });
    t.teardown(() => child.kill('SIGKILL'));
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const said = async () => JSON.parse((await lines.next()).value ?? '{}');
    const { saved } = await said();
    t.match(saved, /^tinker:\/\/.+\/weights\/first$/);
    process.kill('SIGKILL');
    await once(process, 'exit');
    child.stdin.write('\n');
    await start(new URL(url).port);
    const [pending, next] = [await said(), await said()];
    t.match(pending.error, /ValueError: .*there is no request .* since the server was started/);
    t.match(next.error, /NotFoundError: .*there is no model .* or the server was started again/);
    t.ok(next.seconds < 60, `${next.seconds} s`);
    child.stdin.end('\n');
    const { before, after } = await said();
    t.same(after, before, 'the losses after the checkpoint, optimizer included');
  },
);

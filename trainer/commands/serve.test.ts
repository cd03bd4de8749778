import { spawn } from 'node:child_process';
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { goldenFolder } from '../serve/serve.test-data.ts';

const MAIN = fileURLToPath(new URL('../main.ts', import.meta.url));

t.test('a folder with a path like the name of a model on the Hub is served by its last part', async t => {
  const cwd = t.testdir({});
  cpSync(goldenFolder('qwen2-tiny'), join(cwd, 'runs', 'first'), { recursive: true });
  const child = spawn(process.execPath, [MAIN, 'serve', 'runs/first', '--port', '0', '--workers', '1'], {
    cwd,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let said = '';
  for await (const line of createInterface({ input: child.stdout })) {
    said = line;
    break;
  }
  t.match(said, /^serving first on /);
});

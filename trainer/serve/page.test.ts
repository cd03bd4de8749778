import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t from 'tap';
import { lacksPython, PYTHON } from '../../test/python.test-data.ts';
import { goldenFolder, startServer } from './serve.test-data.ts';

const run = promisify(execFile);
const fromHere = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const page = readFileSync(fromHere('docs/how-to/serve.md'), 'utf8');
const NO_CURL = spawnSync('curl', ['--version']).error ? 'needs curl' : false;

t.test('the page serves a policy to every client', async t => {
  const { url } = await startServer(t, goldenFolder('qwen2-tiny'), { policy: { workers: 1 } });

  await t.test('its commands with curl work', { skip: NO_CURL }, async t => {
    const blocks = [...page.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, text]) => text);
    const commands = blocks
      .join('')
      .replaceAll('\\\n', '')
      .split('\n')
      .filter(line => line.startsWith('curl'));
    t.ok(commands.length >= 6);
    for (const command of commands) {
      const { stdout } = await run('bash', ['-c', command], { env: { ...process.env, URL: url } });
      t.notMatch(stdout, /"error"/, command);
      t.ok(stdout.length > 20, command);
    }
  });

  await t.test('its example for Node.js works', async t => {
    const { stdout } = await run(process.execPath, [fromHere('docs/examples/serving/chat.ts'), url]);
    t.ok(stdout.length > 1);
  });

  await t.test('its example for Python works', { skip: lacksPython('openai') }, async t => {
    const { stdout } = await run(PYTHON, [fromHere('docs/examples/serving/chat.py'), url]);
    t.ok(stdout.length > 1);
  });
});

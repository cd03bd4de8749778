import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { testApp } from '../../../test/app.test-data.ts';
import { lacksPython, PYTHON, PYTHON_MS, runPython } from '../../../test/python.test-data.ts';
import { hostOf, listening } from '../../../test/wire.test-data.ts';

const skip = lacksPython('ors', 'aiohttp');

t.test(
  'the Python client of the Open Reward Standard plays a task',
  { skip, timeout: PYTHON_MS },
  async t => {
    const app = await listening(t);
    t.match(await runPython(new URL('./ors.test-data.py', import.meta.url), hostOf(app)), {
      splits: ['train', 'validation', 'test'],
      tasks: [1000, 1000, { seed: 2_000_000 }],
      openai: 'step',
      prompt: [/^Count to 3\./, /^0\/3/],
      tools: ['step', 'observe', 'valid_actions'],
      first: { text: /^1\/3/, reward: 1, finished: false },
      error: /'fly' is not a valid tool/,
      same: true,
    });
    t.equal(app.sessions.size, 0, 'every session was closed');
  },
);

t.test(
  'an environment of the Python server of the Open Reward Standard is played here',
  { skip, timeout: PYTHON_MS },
  async t => {
    const program = fileURLToPath(new URL('./ors-server.test-data.py', import.meta.url));
    const child = spawn(PYTHON, [program], { stdio: ['ignore', 'pipe', 'ignore'] });
    t.teardown(() => child.kill('SIGKILL'));
    const [line] = await once(createInterface({ input: child.stdout }), 'line');
    const port = String(line).split(' ').at(-1);
    const { ask } = await testApp(t, { remoteHosts: '127.0.0.1', remoteNetworks: '127.0.0.1/32' });
    const definition = {
      kind: 'remote',
      protocol: 'ors',
      url: `http://127.0.0.1:${port}`,
      env_name: 'guessing',
      action_tool: 'guess',
      action_field: 'number',
      example_action: '1',
    };
    const registered = await ask('POST', '/v1/envs', { env_id: 'demo/Guessing-v0', definition });
    t.equal(registered.status, 201, registered.text);
    const opened = await ask('POST', '/v1/sessions', {
      env_id: 'demo/Guessing-v0',
      seed: 5,
      observation_format: 'parts',
    });
    t.match(opened.body.observation, [
      { type: 'text', text: 'Guess the number.' },
      { type: 'image', mime: 'image/png', width: 1, height: 1 },
    ]);
    const path = `/v1/sessions/${opened.body.session_id}/step`;
    const wrong = await ask('POST', path, { action: '0' });
    t.match(wrong.body, { observation: [{ text: /^Wrong\. (No\. )+/ }], reward: 0, terminated: false });
    const right = await ask('POST', path, { action: '2' });
    t.match(right.body, { reward: 1, terminated: true, info: { success: true } }, 'seed 5 is task 2 of 3');
  },
);

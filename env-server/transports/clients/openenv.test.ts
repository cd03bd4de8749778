import t from 'tap';
import { lacksPython, PYTHON_MS, runPython } from '../../../test/python.test-data.ts';
import { hostOf, listening } from '../../../test/wire.test-data.ts';

const skip = lacksPython('openenv', 'fastmcp', 'websockets', 'httpx');

t.test("OpenEnv's own clients play in their default modes", { skip, timeout: PYTHON_MS }, async t => {
  const app = await listening(t);
  const url = `http://${hostOf(app)}/compat/openenv/test%2FCounter-v0`;
  const seen = await runPython(new URL('./openenv.test-data.py', import.meta.url), url);
  t.match(seen, {
    tools: {
      tools: [{ name: 'act', description: 'Count to 3.', input_schema: { required: ['action'] } }],
      has: [true, false],
      called: { observation: { text: /^1\/3/ }, reward: 1, done: false },
      reward: 1,
      done: false,
      step_count: 2,
      // Versions before 0.5 name the type of the error, later ones what the server said.
      error: /^Tool 'fly' failed: .*(?:\(type: tool_not_found\)|"fly"; there is act)$/,
    },
    production: { tools: ['act'], called: { observation: { text: /^2\/3/ } } },
    generic: {
      reset: { text: /^0\/3/ },
      step: [{ text: /^1\/3/ }, 1, false],
      state: { episode_id: 'mine', step_count: 1 },
    },
    websocket: { jsonrpc: '2.0', id: 1, result: { tools: [{ name: 'act' }] } },
  });
  t.equal(app.sessions.size, 0, 'every client closed its session');
});

import t from 'tap';
import { lacksPython, PYTHON_MS, runPython } from '../../../test/python.test-data.ts';
import { hostOf, listening } from '../../../test/wire.test-data.ts';

t.test(
  'the Python client of the Open Reward Standard plays a task',
  { skip: lacksPython('ors', 'aiohttp'), timeout: PYTHON_MS },
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

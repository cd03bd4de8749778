import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { freePort } from '../../../test/free-port.test-data.ts';
import { lacksPython, PYTHON_MS, runPython } from '../../../test/python.test-data.ts';
import { hostOf } from '../../../test/wire.test-data.ts';
import { createApp } from '../../app.ts';

/** A Python that has NeMo Gym; `npm run test:parts` installs one and names it. */
const PYTHON = process.env.RAGEN_NEMO_GYM;
/** NeMo Gym installs an environment for each of its servers at first. */
const LONGEST_MS = 1_500_000;
const skip =
  PYTHON === undefined &&
  'needs a Python with nemo-gym in RAGEN_NEMO_GYM: npm run test:parts installs it and runs this test with it';

async function served(t: Test): Promise<string> {
  const app = await createApp({ logLevel: 'silent' });
  t.teardown(() => app.server.close());
  await app.server.listen({ port: 0, host: '127.0.0.1' });
  return hostOf(app);
}

t.test("NeMo Gym's commands play episodes of two environments", { skip, timeout: LONGEST_MS }, async t => {
  const { stdout } = await promisify(execFile)(
    PYTHON!,
    [
      'nemo-gym.test-data.py',
      await served(t),
      String(await freePort()),
      join(dirname(PYTHON!), '../servers'),
    ],
    {
      cwd: import.meta.dirname,
      timeout: LONGEST_MS,
      maxBuffer: 2 ** 26,
      env: {
        ...process.env,
        PYTHONPATH: join(import.meta.dirname, '../../../openapi/python/src'),
        PYTHONDONTWRITEBYTECODE: '1',
      },
    },
  );
  const played = JSON.parse(stdout.trimEnd().split('\n').at(-1)!);
  t.match(played, {
    version: '0.7.0',
    success: [1, 1, 1, 1],
    masked: [false, false, false, false],
    metrics: { 'mean/success': 1 },
    first: /box[\s\S]*#[\s\S]*Play with the tools/i,
    open: 0,
  });
  t.match(played.tools[0], /'fly' is not a valid tool; there are step/);
  t.match(played.tools.at(-1), /The episode is over: success\./);
  t.ok(
    played.rewards.every((reward: number) => reward > 0),
    String(played.rewards),
  );
});

t.test(
  "verifiers plays a row of a server by NeMo Gym's protocol",
  { skip: lacksPython('verifiers', 'uv'), timeout: PYTHON_MS },
  async t => {
    const program = new URL('./nemo-gym-verifiers.test-data.py', import.meta.url);
    const played = (await runPython(program, await served(t))) as {
      rewards: { nemo_gym: { score: number } }[];
    };
    t.match(played, {
      version: '0.4.0',
      errors: [],
      success: [1],
      last: /The episode is over: success\./,
      open: 0,
    });
    for (const { nemo_gym } of played.rewards) t.ok(nemo_gym.score > 0, String(nemo_gym.score));
  },
);

import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { createApp } from '../../../env-server/app.ts';
import { freePort } from '../../../test/free-port.test-data.ts';
import { hostOf } from '../../../test/wire.test-data.ts';

/** A Python that has NeMo Gym; `npm run test:parts` installs one and names it. */
const PYTHON = process.env.RAGEN_NEMO_GYM;
/** NeMo Gym installs an environment for each of its servers at first. */
const LONGEST_MS = 1_500_000;
const skip =
  PYTHON === undefined &&
  'needs a Python with nemo-gym in RAGEN_NEMO_GYM: npm run test:parts installs it and runs this test with it';

t.test("NeMo Gym's commands play episodes at its server", { skip, timeout: LONGEST_MS }, async t => {
  const app = await createApp({ logLevel: 'silent' });
  t.teardown(() => app.server.close());
  await app.server.listen({ port: 0, host: '127.0.0.1' });
  const { stdout } = await promisify(execFile)(
    PYTHON!,
    [
      'play-nemo-gym.test-data.py',
      `http://${hostOf(app)}`,
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
    success: [1, 1, 1],
    masked: [false, false, false],
    first: /box[\s\S]*tool `step`[\s\S]*#/i,
    tools: [/"done":false/, /The episode is over/],
    lost: { reward: 0, success: 0, mask_sample: true, failure_kind: 'session_lost' },
    open: 0,
  });
  t.ok(
    played.rewards.every((reward: number) => reward > 0),
    String(played.rewards),
  );
});

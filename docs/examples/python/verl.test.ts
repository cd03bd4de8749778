import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { createApp } from '../../../env-server/app.ts';
import { PYTHON_MS } from '../../../test/python.test-data.ts';
import { hostOf } from '../../../test/wire.test-data.ts';
import { goldenFolder } from '../../../trainer/serve/serve.test-data.ts';

/** A Python that has verl; `npm run test:parts` installs one and names it. */
const PYTHON = process.env.RAGEN_VERL;
const HERE = import.meta.dirname;
const skip =
  PYTHON === undefined &&
  'needs a Python with verl in RAGEN_VERL: npm run test:parts installs it and runs this test with it';

t.test('an agent loop of verl plays episodes', { skip, timeout: PYTHON_MS }, async t => {
  const app = await createApp({ logLevel: 'silent' });
  t.teardown(() => app.server.close());
  await app.server.listen({ port: 0, host: '127.0.0.1' });
  const { stdout } = await promisify(execFile)(
    PYTHON!,
    ['play-verl.test-data.py', `http://${hostOf(app)}`, goldenFolder('qwen2-tiny')],
    {
      cwd: HERE,
      timeout: PYTHON_MS,
      env: {
        ...process.env,
        PYTHONPATH: `${join(HERE, '../../../openapi/python/src')}:${HERE}`,
        PYTHONDONTWRITEBYTECODE: '1',
      },
    },
  );
  t.match(JSON.parse(stdout.trimEnd().split('\n').at(-1)!), {
    version: '0.9.1',
    clumsy: { turns: 3, answers: 'nonsense'.repeat(3), logprobs: true, observations: /#/ },
    continues: true,
    solved: { turns: 1, logprobs: true },
    open: 0,
  });
});

import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { createApp } from '../../../env-server/app.ts';
import type { Json } from '../../../shared/json.ts';
import { lacksPython, PYTHON, PYTHON_MS } from '../../../test/python.test-data.ts';
import { hostOf } from '../../../test/wire.test-data.ts';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const SOURCES = fileURLToPath(new URL('../../../openapi/python/src', import.meta.url));
const OWN = ['gymnasium', 'numpy', 'httpx', 'websockets'];

async function serve(t: Test): Promise<string> {
  const app = await createApp({ logLevel: 'silent' });
  t.teardown(() => app.server.close());
  await app.server.listen({ port: 0, host: '127.0.0.1' });
  return `http://${hostOf(app)}`;
}

async function python(
  args: readonly string[],
  env: { readonly [name: string]: string } = {},
): Promise<string> {
  const path = [SOURCES, env.PYTHONPATH, process.env.PYTHONPATH].filter(Boolean).join(':');
  const { stdout } = await promisify(execFile)(PYTHON, args, {
    cwd: HERE,
    timeout: PYTHON_MS,
    env: {
      ...process.env,
      ...env,
      PYTHONPATH: path,
      PYTHONDONTWRITEBYTECODE: '1',
      OMP_NUM_THREADS: '1',
      TRL_EXPERIMENTAL_SILENCE: '1',
    },
  });
  return stdout;
}

/** Last line of a program. */
async function run(args: readonly string[], env: { readonly [name: string]: string }): Promise<Json> {
  return JSON.parse((await python(args, env)).trimEnd().split('\n').at(-1) ?? '') as Json;
}

t.test(
  'examples have the types that they say',
  { skip: lacksPython(...OWN, 'mypy'), timeout: PYTHON_MS },
  async t => {
    const files = readdirSync(HERE).filter(
      name => name.endsWith('.py') && !/test-data|^verifiers_/.test(name),
    );
    t.ok(files.length >= 6);
    const text = await python(['-m', 'mypy', '--config-file', 'mypy.ini', ...files], {
      MYPYPATH: SOURCES,
    });
    t.match(text, /no issues found/);
  },
);

t.test(
  'verifiers evaluates a model on an environment',
  { skip: lacksPython('httpx', 'numpy', 'websockets', 'verifiers', 'uv'), timeout: PYTHON_MS },
  async t => {
    t.match(await run(['play-verifiers.test-data.py', await serve(t)], { PYTHONPATH: HERE }), {
      version: '0.4.0',
      errors: [],
      metrics: [1, 1, 1],
      first: /box/i,
      open: 0,
    });
  },
);

t.test(
  'SkyRL-gym plays an episode from its registry',
  { skip: lacksPython('httpx', 'numpy', 'websockets', 'skyrl_gym'), timeout: PYTHON_MS },
  async t => {
    t.match(await run(['play-skyrl.test-data.py', await serve(t)], {}), {
      prompt: /box/i,
      first: { done: false, turns: ['user'] },
      done: true,
      success: true,
      open: 0,
    });
  },
);

t.test(
  'TRL trains with GRPO on tools made of the actions',
  { skip: lacksPython(...OWN, 'trl', 'torch', 'transformers', 'datasets'), timeout: PYTHON_MS },
  async t => {
    const url = await serve(t);
    const folder = t.testdir();
    await python(['tiny_model.py', folder, 'left', 'down', 'right', 'up']);
    const steps = (await run(['trl_grpo.py', folder], { RAGEN_URL: url })) as { [key: string]: number }[];
    t.same(
      steps.map(({ step }) => step),
      [1, 2],
    );
    for (const step of steps) {
      t.ok(step['tools/call_frequency'] > 0, 'tools were called');
      t.equal(step['tools/failure_frequency'], 0);
    }
  },
);

t.test(
  'Stable-Baselines3 trains PPO on a vector',
  { skip: lacksPython(...OWN, 'stable_baselines3', 'torch'), timeout: PYTHON_MS },
  async t => {
    const url = await serve(t);
    const { start, end } = (await run(['sb3_ppo.py', '16384'], { RAGEN_URL: url })) as {
      [key: string]: number;
    };
    t.ok(end > start, `${start} → ${end}`);
  },
);

t.test(
  'Ray: two workers collect from two servers',
  { skip: lacksPython(...OWN, 'ray'), timeout: PYTHON_MS },
  async t => {
    const urls = [await serve(t), await serve(t)];
    const result = (await run(['ray_frozenlake.py', ...urls], {})) as { [key: string]: number };
    t.equal(result.workers, 2);
    t.ok(result.last > result.first, `${result.first} → ${result.last}`);
  },
);

import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { lacksPython, PYTHON, PYTHON_MS, runPython } from '../../../test/python.test-data.ts';
import { FOLDER, startTinker } from './tinker.test-data.ts';

t.setTimeout(PYTHON_MS);
const INSTALL =
  'pip install torch==2.13.0 tinker==0.38.0 tinker-cookbook==0.5.8 sympy pylatexenc math-verify';
const lacks = (...packages: string[]): string | false => {
  const missing = lacksPython(...packages);
  return missing && `${missing}: ${INSTALL}`;
};
/** Steps of the recipe, and those at its beginning and end that are compared. */
const STEPS = 14;
const COMPARED = 3;

interface Found {
  readonly tokenizer: string;
  readonly losses: number[];
  readonly norm: number;
  readonly forward: number;
  readonly importance_sampling: number;
  readonly ppo: number;
  readonly cispo: number;
  readonly dro: number;
  readonly custom: [number, number];
  readonly sampled: number;
  readonly prompt: [null, number];
  readonly topk: number;
  readonly computed: number;
  readonly resumed: [number, number];
  readonly weights: [number, number];
  readonly same: boolean;
  readonly refused: string;
}

t.test(
  'the Python package tinker trains, samples, saves and resumes',
  { skip: lacks('tinker', 'torch') },
  async t => {
    const { url, server } = await startTinker(t);
    const program = new URL('sdk.test-data.py', import.meta.url);
    const found = (await runPython(program, url, server.name)) as unknown as Found;
    const { losses, forward } = found;
    t.equal(found.tokenizer, FOLDER);
    t.ok(
      losses.every((loss, i) => i === 0 || loss < losses[i - 1]),
      `the loss falls: ${losses}`,
    );
    t.ok(forward < losses[4] && found.norm > 0);
    // The advantages are 1 on six tokens, and the ratios are 1.
    for (const name of ['importance_sampling', 'ppo'] as const) {
      t.ok(Math.abs(found[name] + 6) < 1e-4, `${name}: ${found[name]}`);
    }
    for (const name of ['cispo', 'dro'] as const) {
      t.ok(Math.abs(found[name] - forward) < 1e-4, `${name}: ${found[name]}`);
    }
    t.ok(Math.abs(found.custom[0] - found.custom[1]) < 1e-3, 'a custom loss is computed from forward');
    t.ok(found.sampled < 1e-4, `samples differ from forward by ${found.sampled}`);
    t.equal(found.prompt[0], null);
    t.ok(found.prompt[1] < 1e-4 && found.computed < 1e-4);
    t.equal(found.topk, 2);
    for (const name of ['resumed', 'weights'] as const) {
      t.ok(Math.abs(found[name][0] - found[name][1]) < 1e-5, name);
    }
    t.ok(found.same, 'a sampler from a path samples the same');
    t.match(found.refused, /loss_fn "gspo" is not supported/);
  },
);

t.test(
  'the recipe math_rl of tinker-cookbook raises its reward',
  { skip: lacks('tinker_cookbook', 'torch', 'sympy', 'pylatexenc', 'math_verify') },
  async t => {
    const { url } = await startTinker(t);
    const cwd = await mkdtemp(join(tmpdir(), 'ragen-recipe-'));
    t.teardown(() => rm(cwd, { recursive: true, force: true }));
    const log = join(cwd, 'log');
    const settings = {
      env: 'arithmetic',
      loss_fn: 'importance_sampling',
      model_name: FOLDER,
      renderer_name: 'qwen3_instruct',
      group_size: 16,
      groups_per_batch: 8,
      max_tokens: 16,
      learning_rate: 3e-3,
      lora_rank: 8,
      max_steps: STEPS,
      eval_every: 0,
      save_every: 5,
      log_path: log,
    };
    const args = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
    const env = { ...process.env, TINKER_TELEMETRY: '0', TINKER_BASE_URL: url, TINKER_API_KEY: 'tml-test' };
    const module = ['-m', 'tinker_cookbook.recipes.math_rl.train'];
    const limits = { env, timeout: PYTHON_MS, maxBuffer: 2 ** 26, cwd };
    await promisify(execFile)(PYTHON, [...module, ...args], limits);
    const lines = (await readFile(join(log, 'metrics.jsonl'), 'utf8')).trim().split('\n');
    // tinker-cookbook 0.6 adds a line that belongs to no step.
    const steps = lines
      .map(line => JSON.parse(line) as Record<string, number>)
      .filter(step => 'env/all/reward/total' in step);
    t.equal(steps.length, STEPS);
    const rewards = steps.map(step => step['env/all/reward/total']);
    const mean = (some: number[]) => some.reduce((sum, x) => sum + x, 0) / some.length;
    const [first, last] = [mean(rewards.slice(0, COMPARED)), mean(rewards.slice(-COMPARED))];
    t.ok(last > first + 0.03, `the reward rises: ${rewards}`);
    for (const step of steps) {
      t.ok(Math.abs(step['optim/kl_sample_train_v1']) < 1e-3, 'sampler and trainer agree');
    }
  },
);

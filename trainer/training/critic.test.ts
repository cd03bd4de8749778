import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { Json } from '../../shared/json.ts';
import { evaluate } from '../commands/evaluate/evaluate.ts';
import { silentProgress } from '../tracking/progress.ts';
import { trainRun } from './run.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import type { RunFolder } from './run-folder/run-folder.ts';
import { MAX_MS, tinyRuns, trainingRows } from './runs.test-data.ts';

const never = new AbortController().signal;
const policyOf = (run: RunFolder) => latestCheckpoint(run)!.policy;

/** Names and contents of the policy's files, the critic's included. */
const files = (run: RunFolder) =>
  readdirSync(policyOf(run), { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(({ parentPath, name }) => [
      join(parentPath, name).slice(policyOf(run).length),
      readFileSync(join(parentPath, name)).toString('base64'),
    ])
    .sort();

t.test('a run with a separate critic', { timeout: MAX_MS }, async t => {
  const { settings, train, trainInTwo } = await tinyRuns(t);
  const ppo = (policy: Json = {}) => ({
    policy: { critic: { learning_rate: 0.01 }, ...(policy as object) },
    algorithm: { advantage: 'gae', ppo_epochs: 2 },
    optimizer: { learning_rate: 1e-3, warmup_iterations: 2 },
    training: { steps: 4, checkpoint_every: 2 },
  });
  await t.test('learns, and continues as if it had never stopped', async t => {
    const full = { ...ppo(), warm_start: { episodes: 8, epochs: 1 } };
    const whole = await train('whole', full);
    t.strictSame(files(await trainInTwo('parted', full, 2)), files(whole));
    const rows = trainingRows(whole);
    t.equal(rows[0]['critic/values/mean'], 0, 'a fresh critic expects nothing');
    t.ok(rows[3]['critic/values/mean'] !== 0);
    t.same(
      rows.map(row => row['critic/lr']),
      [0.005, 0.01, 0.01, 0.01],
    );
    t.ok(rows.every(row => row['critic/grad_norm'] > 0 && row['critic/vf_loss'] > 0));
    t.ok(Math.abs(rows[0]['actor/ppo_kl']) < 1e-2);
    t.notOk(existsSync(join(policyOf(whole), 'value_head.safetensors')), 'the trunk has no head');
    t.ok(existsSync(join(policyOf(whole), 'critic', 'value_head.safetensors')));

    const printed = t.capture(console, 'log');
    t.equal(await evaluate(whole.path, [], { policy: ['checkpoint'], json: true, quiet: true }), 0);
    t.match(JSON.parse(printed()[0].args[0]), [{ episodes: 4 }]);
  });

  await t.test('the critic has adapters where the policy has, and may start from another model', async t => {
    const base = policyOf(await train('base', { training: { steps: 0 } }));
    const lora = { rank: 2, alpha: 4, target_modules: ['q_proj', 'up_proj'] };
    const once = (policy: Json) => ({ ...ppo(policy), training: { steps: 1 } });
    const adapted = await train('lora', once({ init: base, lora }));
    t.ok(existsSync(join(policyOf(adapted), 'critic', 'adapter_model.safetensors')));
    t.notOk(existsSync(join(policyOf(adapted), 'critic', 'model.safetensors')));
    const more = { ...settings('lora', once({ init: base, lora })) };
    await trainRun(adapted, { ...more, training: { ...more.training, steps: 2 } }, silentProgress, never);
    t.equal(trainingRows(adapted).length, 2, 'and continues');

    const small = await train('small', { policy: { hidden_size: 8, heads: 1 }, training: { steps: 0 } });
    const critic = { init: policyOf(small), learning_rate: 0.01 };
    const other = await train('other', once({ critic }));
    t.match(JSON.parse(readFileSync(join(policyOf(other), 'critic', 'config.json'), 'utf8')), {
      hidden_size: 8,
    });
  });
});

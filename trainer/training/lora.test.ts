import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { Json } from '../../shared/json.ts';
import { mergeAdapter } from '../commands/merge-lora.ts';
import { readJsonLines } from '../tracking/jsonlines.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import type { RunFolder } from './run-folder/run-folder.ts';
import { MAX_MS, type Row, tinyRuns, trainingRows } from './runs.test-data.ts';
import { openPolicy } from './setup/open-policy.ts';
import { openRunContext } from './setup/run-context.ts';

const never = new AbortController().signal;
const policyOf = (run: RunFolder) => latestCheckpoint(run)!.policy;
const learned = (run: RunFolder) =>
  ['adapter_model.safetensors', 'value_head.safetensors', 'optimizer/optimizer.safetensors'].map(name =>
    readFileSync(join(policyOf(run), name)).toString('base64'),
  );

t.test('adapters are taught and trained next to a base that stays as it is', { timeout: MAX_MS }, async t => {
  const { folder, settings, train, trainInTwo } = await tinyRuns(t);
  const base = policyOf(await train('base', { training: { steps: 1 } }));
  const weights = readFileSync(join(base, 'model.safetensors'));
  const lora = (more: Json = {}) => ({
    policy: { init: base, lora: { rank: 2, alpha: 4, target_modules: ['q_proj', 'v_proj', 'up_proj'] } },
    ...(more as object),
  });

  const taught = await train(
    'taught',
    lora({ training: { steps: 0 }, warm_start: { episodes: 24, epochs: 3, learning_rate: 0.02 } }),
  );
  const losses = (readJsonLines(taught.metrics) as Row[]).flatMap(row => row['sft/loss'] ?? []);
  t.equal(losses.length, 3);
  t.ok(losses[2] < losses[0], `losses ${losses}`);

  const goingOn = {
    ...lora({ training: { steps: 4, checkpoint_every: 2 }, loss: { kl: { coefficient: 0.1 } } }),
    algorithm: { mini_batch_size: 16 },
    optimizer: { learning_rate: 0.01 },
  };
  goingOn.policy.init = policyOf(taught);
  const whole = await train('whole', goingOn);
  const rows = trainingRows(whole);
  t.equal(rows.length, 4);
  t.ok(Math.abs(rows[0]['actor/ppo_kl']) < 1e-6);
  t.ok(Math.abs(rows[0]['actor/kl_loss']) < 1e-8, 'the reference is the policy as training found it');
  t.ok(rows[3]['actor/kl_loss'] > 1e-6, 'the policy has left the reference');
  t.ok(existsSync(join(whole.reference, 'adapter_model.safetensors')));
  t.notOk(existsSync(join(whole.reference, 'model.safetensors')), 'no second copy of the base');
  t.notOk(existsSync(join(policyOf(whole), 'model.safetensors')));
  t.ok(readFileSync(join(base, 'model.safetensors')).equals(weights), 'the base is as it was');

  const parted = settings('parted', goingOn);
  const run = await trainInTwo('parted', goingOn, 2);
  t.same(learned(run), learned(whole), 'half, resume and half again is the whole, bit for bit');

  const merged = join(folder, 'merged');
  t.equal(await mergeAdapter(policyOf(whole), merged, { base }), 3);
  const context = await openRunContext(parted, merged, () => {}, never);
  t.teardown(() => context.close());
  const plain = { ...parted, policy: { ...parted.policy, lora: null } };
  const sequence = { tokenIds: Int32Array.of(3, 4, 5, 6, 7), lossMask: Uint8Array.of(0, 1, 1, 1, 1) };
  const scores: Float32Array[] = [];
  for (const place of [policyOf(whole), merged]) {
    const policy = await openPolicy(plain, context, place);
    t.equal(policy.config.lora === undefined, place === merged);
    const [{ logProbs, values }] = await policy.score([sequence]);
    scores.push(Float32Array.from([...logProbs, ...values!]));
    await policy.close();
  }
  t.ok(
    scores[0].every((x, i) => Math.abs(x - scores[1][i]) < 1e-5),
    'merged, it computes the same',
  );
  await t.rejects(mergeAdapter(policyOf(whole), merged, { base }), /holds a model already/);
  await t.rejects(mergeAdapter(base, join(folder, 'other')), /nothing to merge/);
});

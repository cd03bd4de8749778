import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { WebGpuRuntime } from '../../tensor/runtime/webgpu/webgpu-runtime.ts';
import type { LocalPolicy } from '../local-policy.ts';
import {
  closing,
  largestDifference,
  play,
  policyWith,
  settingsWith,
  weightsOf,
} from '../policies.test-data.ts';
import type { UpdateMetrics } from '../policy.ts';
import { LossScale } from './loss-scale.ts';

const found = await WebGpuRuntime.open('float16');
const skip =
  found === null ? 'no GPU here that Dawn can use' : found.precision === 'float32' && 'no float16 here';
await found?.close();

/** Largest difference between a log-probability as sampled and as scored, or as scored in another precision. */
const CLOSE = 5e-3;

const halves = (options = {}): Promise<LocalPolicy> =>
  policyWith({ runtime: 'webgpu', precision: 'float16', ...options });
const lossOf = (metrics: UpdateMetrics): number => metrics['sft/loss'];

t.test(
  'a policy of float16 products samples as it scores and learns as one of float32',
  { skip },
  async t => {
    const half = await closing(t, halves());
    const whole = await closing(t, policyWith());
    t.match(half.description, /products of float16 factors|tensor cores/);
    const sequences = await play(half, 6);
    const [scores, wanted] = [await half.score(sequences), await whole.score(sequences)];
    sequences.forEach(({ logProbs }, n) => {
      t.ok(largestDifference(scores[n].logProbs, logProbs) < CLOSE, `sampled as scored, ${n}`);
      t.ok(largestDifference(scores[n].logProbs, wanted[n].logProbs) < CLOSE, `as in float32, ${n}`);
    });
    t.not(largestDifference(scores[0].logProbs, wanted[0].logProbs), 0, 'factors were rounded');
    const settings = settingsWith({ policy: 'cross_entropy' }, { learningRate: 1e-2 });
    const rows: (readonly [half: UpdateMetrics, whole: UpdateMetrics])[] = [];
    for (let step = 0; step < 12; step++) {
      rows.push([await half.update({ sequences }, settings), await whole.update({ sequences }, settings)]);
    }
    const [first, last] = [rows[0], rows[rows.length - 1]];
    t.ok(Math.abs(first[0]['actor/grad_norm'] / first[1]['actor/grad_norm'] - 1) < 0.01, 'gradient norms');
    t.ok(lossOf(last[0]) < 0.5 * lossOf(first[0]), `loss ${lossOf(first[0])} → ${lossOf(last[0])}`);
    t.ok(Math.abs(lossOf(last[0]) - lossOf(last[1])) < 0.05 * lossOf(first[1]), 'near the loss of float32');
    t.equal(first[0]['actor/loss_scale'], 2 ** 16);
    t.notOk('actor/loss_scale' in first[1]);
  },
);

t.test('a step that overflows is skipped, and a resumed run takes the same steps', { skip }, async t => {
  const lossScale = { initial: 2 ** 24, growthInterval: 2, backOff: 0.25 };
  const policy = await closing(t, halves({ lossScale }));
  // Advantages as large as these overflow until the scale has come down.
  const sequences = (await play(policy, 4)).map(sequence => ({
    ...sequence,
    advantages: sequence.advantages.map(advantage => 50 * advantage),
  }));
  const before = await weightsOf(policy);
  const skipped = await policy.update({ sequences }, settingsWith());
  t.equal(skipped['actor/step_skipped'], 1);
  t.notOk('actor/grad_norm' in skipped);
  t.ok(Object.values(skipped).every(Number.isFinite));
  t.equal(policy.version, 0);
  const after = await weightsOf(policy);
  t.ok(
    before.every((file, i) => file.equals(after[i])),
    'weights and moments are as they were',
  );
  const { products } = await policy.decomposeGradients([{ sequences }], settingsWith());
  t.ok(products[0] > 0, 'a measurement tries again with a smaller scale');
  let stepped = await policy.update({ sequences }, settingsWith());
  t.equal(stepped['actor/loss_scale'], 2 ** 22, 'and leaves the scale of the updates alone');
  while (stepped['actor/step_skipped'] === 1) stepped = await policy.update({ sequences }, settingsWith());

  const folder = await mkdtemp(join(tmpdir(), 'ragen-float16-'));
  t.teardown(() => rm(folder, { recursive: true }));
  await policy.save(folder);
  const resumed = await closing(t, halves({ lossScale, model: folder }));
  await resumed.load(folder);
  const rest = async (one: LocalPolicy): Promise<UpdateMetrics[]> => {
    const rows: UpdateMetrics[] = [];
    for (let step = 0; step < 4; step++) rows.push(await one.update({ sequences }, settingsWith()));
    return rows;
  };
  const [own, others] = [await rest(policy), await rest(resumed)];
  t.same(others, own);
  t.ok(new Set(own.map(row => row['actor/loss_scale'])).size > 1, 'the scale moved meanwhile');
  t.same(await weightsOf(resumed), await weightsOf(policy));
  const { lossScale: state } = JSON.parse(await readFile(join(folder, 'optimizer/optimizer.json'), 'utf8'));
  t.equal(state.scale, stepped['actor/loss_scale']);
});

t.test('float16 is refused where it cannot be', async t => {
  await t.rejects(
    policyWith({ precision: 'float16' }),
    /policy.precision float16 needs policy.runtime webgpu.*use policy.precision float32/,
  );
  await t.rejects(policyWith({ runtime: 'auto', precision: 'float16' }), /runs on ONNX Runtime/);
  const unknown = 'bfloat16' as 'float16';
  await t.rejects(policyWith({ precision: unknown }), /bfloat16 is not known; choose float32, float16/);
});

t.test('the scale halves at an overflow and doubles after enough steps without', async t => {
  const scale = new LossScale({ initial: 8, growthInterval: 3, backOff: 0.5 });
  const after = (finite: boolean): number => {
    if (finite) scale.succeeded();
    else scale.overflowed();
    return scale.scale;
  };
  t.same([true, true, true, true].map(after), [8, 8, 16, 16]);
  t.same([true, false, true, true, true].map(after), [16, 8, 8, 8, 16]);
});

t.test('a restored scale continues where the other was', async t => {
  const settings = { initial: 8, growthInterval: 3, backOff: 0.5 };
  const first = new LossScale(settings);
  first.overflowed();
  first.succeeded();
  first.succeeded();
  const second = new LossScale(settings);
  second.restore(first.state);
  for (const scale of [first, second]) scale.succeeded();
  t.same(second.state, first.state);
  t.equal(second.scale, 8);
  second.restore(undefined);
  t.same(second.state, { scale: 8, steps: 0 });
});

t.test('the loss scale stays within bounds and reports when no scale helps', async t => {
  const large = new LossScale({ initial: 2 ** 24, growthInterval: 1, backOff: 0.5 });
  large.succeeded();
  t.equal(large.scale, 2 ** 24);
  const small = new LossScale({ initial: 1.5, growthInterval: 1, backOff: 0.1 });
  small.overflowed();
  t.equal(small.scale, 1);
  t.throws(() => small.overflowed(), /not finite in float16 even with the loss scaled by 1;.*float32/);
});

t.test('settings out of range are named', async t => {
  const settings = { initial: 8, growthInterval: 3, backOff: 0.5 };
  t.throws(() => new LossScale({ ...settings, initial: 0.5 }), /initial must be from 1 to 16777216, got 0.5/);
  t.throws(() => new LossScale({ ...settings, growthInterval: 0 }), /growthInterval .* got 0/);
  t.throws(() => new LossScale({ ...settings, backOff: 1 }), /backOff .* got 1/);
});

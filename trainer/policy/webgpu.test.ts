import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { Random } from '../../shared/random.ts';
import { POLICY_LOSSES } from '../algorithms/losses/registry.ts';
import type { Aggregation } from '../algorithms/losses/settings.ts';
import { WebGpuRuntime } from '../tensor/runtime/webgpu/webgpu-runtime.ts';
import { closing, largestDifference, play, policyWith, settingsWith } from './policies.test-data.ts';

const found = await WebGpuRuntime.open();
await found?.close();
/** The only aggregation of a loss. */
const AGGREGATIONS: Readonly<Record<string, Aggregation>> = {
  gspo: 'seq_mean_token_mean',
  gmpo: 'seq_mean_token_mean',
  sapo: 'seq_mean_token_mean',
  dpo: 'seq_mean_token_sum',
};
const onGpu = { skip: found === null ? 'no GPU here that Dawn can use' : false };

t.test('a policy on WebGPU generates, scores and learns as one on ONNX Runtime', onGpu, async t => {
  const gpu = await closing(t, policyWith({ runtime: 'webgpu', workers: 2 }));
  const cpu = await closing(t, policyWith({ runtime: 'onnx' }));
  t.match(gpu.description, /^WebGPU \(.*\), 1 worker$/);
  t.match(cpu.description, /^ONNX Runtime on the processor, 1 thread a worker, 1 worker$/);
  const sequences = await play(gpu, 6);
  t.strictSame(
    (await play(cpu, 6)).map(({ tokenIds }) => [...tokenIds]),
    sequences.map(({ tokenIds }) => [...tokenIds]),
  );
  for (const step of [1, 2]) {
    const settings = settingsWith();
    const [a, b] = [await gpu.update({ sequences }, settings), await cpu.update({ sequences }, settings)];
    const norms = [a['actor/grad_norm'], b['actor/grad_norm']];
    t.ok(Math.abs(norms[0] / norms[1] - 1) < 1e-4, `gradient norms ${norms} of step ${step}`);
  }
  const [given, wanted] = [await gpu.score(sequences), await cpu.score(sequences)];
  const folder = await mkdtemp(join(tmpdir(), 'ragen-webgpu-'));
  t.teardown(() => rm(folder, { recursive: true }));
  given.forEach((score, i) => {
    t.ok(largestDifference(score.logProbs, wanted[i].logProbs) < 1e-4, `log-probabilities of ${i}`);
    t.ok(largestDifference(score.values!, wanted[i].values!) < 1e-4, `values of ${i}`);
  });

  await gpu.save(folder);
  await cpu.load(folder);
  const third = [
    await gpu.update({ sequences }, settingsWith()),
    await cpu.update({ sequences }, settingsWith()),
  ];
  const [norm, loaded] = third.map(metrics => metrics['actor/grad_norm']);
  t.ok(Math.abs(norm / loaded - 1) < 1e-5, 'what was learned on the device is saved');
  const after = [await gpu.score(sequences), await cpu.score(sequences)];
  after[0].forEach(({ logProbs }, i) => {
    t.ok(largestDifference(logProbs, after[1][i].logProbs) < 1e-4, `log-probabilities of ${i} a step later`);
  });
  await gpu.load(folder);
  (await gpu.score(sequences)).forEach(({ logProbs }, i) => {
    t.same(logProbs, given[i].logProbs, `what was saved is back on the device, ${i}`);
  });
});

t.test('every policy loss moves the weights on WebGPU as on ONNX Runtime', onGpu, async t => {
  const gpu = await closing(t, policyWith({ runtime: 'webgpu' }));
  const cpu = await closing(t, policyWith({ runtime: 'onnx' }));
  // Of a policy that has moved since: ratios on both sides of every clip.
  const drift = Random.fromSeed(5);
  const moved = (logProbs: Float32Array) => logProbs.map(logProb => logProb + 0.4 * drift.normal());
  const sequences = (await play(cpu, 6)).map((sequence, i) => ({
    ...sequence,
    advantages: sequence.advantages.fill(drift.normal()),
    logProbs: moved(sequence.logProbs),
    proximalLogProbs: moved(sequence.logProbs),
    referenceLogProbs: moved(sequence.logProbs),
    preference: { chosen: i % 2 === 0, partnerLogRatio: 0.2 },
    selected: Uint8Array.from(sequence.lossMask, (trained, at) => trained * (at % 2)),
  }));
  const folder = await mkdtemp(join(tmpdir(), 'ragen-losses-'));
  t.teardown(() => rm(folder, { recursive: true }));
  await cpu.save(folder);
  for (const policy of POLICY_LOSSES) {
    for (const each of [gpu, cpu]) await each.load(folder);
    const settings = settingsWith({
      policy,
      aggregation: AGGREGATIONS[policy] ?? 'token_mean',
      dro: { beta: 0.1 },
    });
    const [given, wanted] = [
      await gpu.update({ sequences }, settings),
      await cpu.update({ sequences }, settings),
    ];
    t.ok(wanted['actor/grad_norm'] > 0.01, `${policy} has a gradient`);
    for (const [name, value] of Object.entries(wanted)) {
      t.ok(
        Math.abs(given[name] - value) <= 1e-4 * (1 + Math.abs(value)),
        `${policy}: ${name} is ${value}, not ${given[name]}`,
      );
    }
  }
});

t.test('auto keeps a small model on the processor', async t => {
  const policy = await closing(t, policyWith({ runtime: 'auto' }));
  t.match(policy.description, /^ONNX Runtime/);
});

t.test('a model over the GPU’s memory is refused before the start', async t => {
  await t.rejects(
    policyWith({ runtime: 'webgpu', gpuMemory: 2 ** 16 }),
    /takes 0\.0 GiB \(weights .*, the cache of keys and values .*\) and policy\.gpu_memory_gib has 0\.0 GiB/,
  );
});

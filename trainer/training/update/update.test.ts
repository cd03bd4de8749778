import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { DEFAULT_LOSS_SETTINGS } from '../../algorithms/losses/settings.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import { averageRows } from '../../data/metrics.ts';
import type { UpdateSettings } from '../../policy/policy.ts';
import { splitEvenly, updatePolicy } from './update.ts';

const settings = { loss: DEFAULT_LOSS_SETTINGS } as UpdateSettings;
const sequence = (id: number): TrainingSequence => ({
  tokenIds: Int32Array.of(id, id),
  lossMask: Uint8Array.of(0, 1),
  logProbs: new Float32Array(2),
  advantages: new Float32Array(2),
});

t.test('a batch is cut into steps of nearly equal size', async t => {
  const sizes = (n: number, largest: number) =>
    splitEvenly(new Array(n).fill(0), largest).map(part => part.length);
  t.same(sizes(256, 32), new Array(8).fill(32));
  t.same(sizes(33, 32), [16, 17]);
  t.same(sizes(0, 32), []);
});

t.test('every sequence is trained once per epoch, in an order fixed by the seed', async t => {
  const run = async (seed: number) => {
    const seen: number[][] = [];
    const policy = {
      update: async (batch: { sequences: readonly TrainingSequence[] }) => {
        seen.push(batch.sequences.map(item => item.tokenIds[0]));
        return { loss: seen.length };
      },
    };
    const plan = { settings, epochs: 2, miniBatch: 4, seed };
    const result = await updatePolicy(policy, [0, 1, 2, 3, 4, 5, 6, 7].map(sequence), plan);
    return { seen, result };
  };
  const { seen, result } = await run(1);
  t.same(result, { metrics: { loss: 2.5 }, steps: 4, trainedTokens: 16 });
  t.same(seen.slice(0, 2).flat().sort(), [0, 1, 2, 3, 4, 5, 6, 7]);
  t.same(seen.slice(2).flat().sort(), [0, 1, 2, 3, 4, 5, 6, 7]);
  t.notSame(seen.slice(0, 2), seen.slice(2), 'the second epoch is in another order');
  t.same((await run(1)).seen, seen);
  t.notSame((await run(2)).seen, seen);
});

t.test('explained variance is that of the whole batch, not the mean over steps', async t => {
  const sequences = [0, 0, 1, 1].map((target, id) => ({
    ...sequence(id),
    values: Float32Array.of(0, target + (id % 2 ? 0.1 : -0.1)),
    returns: Float32Array.of(0, target),
  }));
  const policy = { update: async () => ({ 'critic/vf_explained_var': -7 }) };
  const { metrics } = await updatePolicy(policy, sequences, { settings, epochs: 1, miniBatch: 2, seed: 1 });
  t.ok(Math.abs(metrics['critic/vf_explained_var'] - (1 - 0.04 / 1)) < 1e-3);
  t.ok(Math.abs(metrics['critic/returns/mean'] - 0.5) < 1e-6);
});

t.test('rows are averaged name by name', async t => {
  t.same(averageRows([{ a: 1, b: 4 }, { a: 3 }]), { a: 2, b: 4 });
  t.same(averageRows([]), {});
});

t.test('RAGEN_DUMP=batch writes each step of the optimizer as JSON lines', async t => {
  const folder = t.testdir();
  process.env.RAGEN_DUMP = 'batch';
  process.env.RAGEN_DUMP_DIR = folder;
  t.teardown(() => {
    delete process.env.RAGEN_DUMP;
    delete process.env.RAGEN_DUMP_DIR;
  });
  const sequences = [1, 2, 3].map(id => ({ ...sequence(id), advantages: Float32Array.of(0.5, Number.NaN) }));
  await updatePolicy({ update: async () => ({}) }, sequences, { settings, epochs: 1, miniBatch: 2, seed: 1 });
  const lines = readdirSync(folder)
    .sort()
    .map(file =>
      readFileSync(join(folder, file), 'utf8')
        .trim()
        .split('\n')
        .map(line => JSON.parse(line)),
    );
  t.same(
    lines.map(step => step.length),
    [1, 2],
  );
  t.match(lines[0][0], { lossMask: [0, 1], advantages: [0.5, 'NaN'], tokenIds: [Number, Number] });
});

t.test('tokens are chosen before each step, from scores under the weights as they are', async t => {
  const scored: number[] = [];
  const seen: (Uint8Array | undefined)[] = [];
  const scorer = {
    score: async (requests: readonly { tokenIds: Int32Array }[]) => {
      scored.push(requests.length);
      return requests.map(({ tokenIds }) => ({
        logProbs: Float32Array.of(0, -tokenIds[0]),
        entropies: new Float32Array(2),
      }));
    },
  };
  const policy = {
    update: async (batch: { sequences: readonly TrainingSequence[] }) => {
      seen.push(...batch.sequences.map(({ selected }) => selected));
      return {};
    },
  };
  const sequences = [1, 2, 3, 4].map(id => ({ ...sequence(id), advantages: Float32Array.of(0, -id) }));
  const loss = { ...DEFAULT_LOSS_SETTINGS, policy: 'kl_cov', klCov: { ratio: 0.5, coefficient: 1 } };
  const { metrics } = await updatePolicy(policy, sequences, {
    settings: { loss } as UpdateSettings,
    epochs: 1,
    miniBatch: 2,
    seed: 1,
    scorer,
  });
  t.same(scored, [2, 2]);
  t.equal(seen.filter(one => one?.[1] === 1).length, 2, 'one of the two tokens of each step');
  t.ok(seen.every(one => one?.[0] === 0));
  t.equal(metrics['actor/selected_frac'], 0.5);
});

t.test('a target KL ends the iteration after the step that passes it', async t => {
  const run = async (targetKl: number | undefined, kls: readonly number[]) => {
    let steps = 0;
    const policy = { update: async () => ({ 'actor/ppo_kl': kls[steps++] }) };
    const plan = { settings, epochs: 2, miniBatch: 2, seed: 1, ...(targetKl ? { targetKl } : {}) };
    const result = await updatePolicy(policy, [0, 1, 2, 3].map(sequence), plan);
    return [steps, result.steps, result.trainedTokens, result.metrics['actor/kl_stopped']];
  };
  t.same(await run(0.02, [0, 0.03, 0, 0]), [2, 2, 4, 1]);
  t.same(await run(0.02, [0, 0.02, 0.01, -0.5]), [4, 4, 8, 0]);
  t.same(await run(undefined, [9, 9, 9, 9]), [4, 4, 8, undefined]);
});

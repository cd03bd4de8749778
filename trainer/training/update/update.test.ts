import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { Random } from '../../../shared/random.ts';
import type { FilterFill } from '../../algorithms/filters/settings.ts';
import { DEFAULT_LOSS_SETTINGS } from '../../algorithms/losses/settings.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import { averageRows } from '../../data/episode-metrics.ts';
import type { UpdateSettings } from '../../policy/policy.ts';
import { fillBatch, learningRateAt, type Schedule, splitEvenly, updatePolicy } from './update.ts';

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

const linear: Schedule = { peak: 1, warmup: 4, total: 14, decay: 'linear', finalShare: 0.1 };
const rates = (schedule: Schedule, indices: number[]) =>
  indices.map(i => Number(learningRateAt(schedule, i).toFixed(12)));

t.test('warm-up rises linearly and its last unit runs at the peak', async t => {
  t.same(rates(linear, [0, 1, 2, 3, 4]), [0.25, 0.5, 0.75, 1, 1]);
});

t.test('linear and cosine decay end at the final share and stay there', async t => {
  t.same(rates(linear, [9, 14, 99]), [0.55, 0.1, 0.1]);
  t.same(rates({ ...linear, decay: 'cosine' }, [4, 9, 14, 99]), [1, 0.55, 0.1, 0.1]);
});

t.test('a constant rate stays, a peak of 0 never learns', async t => {
  t.same(rates({ ...linear, decay: 'constant' }, [3, 50]), [1, 1]);
  t.same(rates({ ...linear, peak: 0 }, [0, 5]), [0, 0]);
});

/** Positions and weights of what fills mini-batches, from this many sequences. */
const plan = (mode: FilterFill | 'none', count: number, multiple = 4) => {
  const sequences = Array.from(
    { length: count },
    (_, i) => ({ tokenIds: Int32Array.of(i) }) as TrainingSequence,
  );
  const filled = fillBatch(sequences, mode, multiple, Random.fromSeed(3));
  return {
    indices: filled.map(({ tokenIds }) => tokenIds[0]),
    weights: filled.map(({ weight = 1 }) => weight),
  };
};

t.test('without a fill, and with one that collects what is missing, the batch stays as it is', async t => {
  for (const mode of ['none', 'refill'] as const) {
    t.same(plan(mode, 6), { indices: [0, 1, 2, 3, 4, 5], weights: [1, 1, 1, 1, 1, 1] }, mode);
  }
});

t.test('copy repeats sequences up to the next multiple, none twice before all once', async t => {
  const { indices } = plan('copy', 3, 8);
  t.equal(indices.length, 8);
  const counts = [0, 1, 2].map(i => indices.filter(index => index === i).length);
  t.ok(Math.max(...counts) - Math.min(...counts) <= 1);
  t.same(plan('copy', 4).indices, [0, 1, 2, 3]);
});

t.test('delete drops down to the last multiple', async t => {
  const { indices } = plan('delete', 7);
  t.equal(indices.length, 4);
  t.equal(new Set(indices).size, 4);
  t.same(plan('delete', 3).indices, []);
});

t.test('pad adds sequences of weight 0', async t => {
  t.same(plan('pad', 3), { indices: [0, 1, 2, 0], weights: [1, 1, 1, 0] });
});

t.test('an empty selection stays empty', async t => {
  for (const mode of ['copy', 'delete', 'pad'] as const) t.same(plan(mode, 0).indices, [], mode);
});

t.test('an unknown mode is refused with the valid ones', async t => {
  t.throws(() => plan('drop' as FilterFill, 3), {
    message: 'no fill mode "drop"; choose one of refill, copy, delete, pad',
  });
});

import t from 'tap';
import { validateConfig } from '../../../shared/config.ts';
import type { Json } from '../../../shared/json.ts';
import { countLossTokens } from '../../algorithms/losses/aggregation.ts';
import { lossInputs, lossScalars, lossStructure } from '../../algorithms/losses/inputs.ts';
import { DEFAULT_LOSS_SETTINGS } from '../../algorithms/losses/settings.ts';
import {
  buildUpdateLoss,
  declareLossInputs,
  LOSS_COMPONENTS,
  lossInputName,
} from '../../algorithms/losses/update-loss.ts';
import { mean } from '../../algorithms/statistics.ts';
import { RunSettings } from '../../config/settings.ts';
import { episodeOf, turnOf } from '../../data/episodes.test-data.ts';
import { experienceSettings, trainingSequences } from '../../data/experience.ts';
import { allEpisodes } from '../../data/filtering.ts';
import type { GradientSettings, UpdateBatch } from '../../policy/policy.ts';
import { gradients } from '../../tensor/graph/gradients.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import { interpret } from '../../tensor/graph/interpreter.test-data.ts';
import {
  bucketMetrics,
  decomposeGradients,
  GradientGeometry,
  planBuckets,
  planCells,
} from './gradient-decomposition.ts';

const settingsWith = (over: { [key: string]: Json } = {}) =>
  validateConfig(
    {
      tags: { Lake: { env_id: 'FrozenLake-v0' } },
      policy: { value_head: false },
      algorithm: { advantage: 'dr_grpo', filter: { strategy: 'top_p', include_zero: false } },
      loss: { entropy_coefficient: 0.5 },
      ...over,
    },
    RunSettings,
  );

/** Twelve groups of two; the first half ends alike, the others ever further apart. */
const episodes = Array.from({ length: 24 }, (_, i) => {
  const groupId = i >> 1;
  const spread = Math.max(0, groupId - 5);
  return episodeOf({
    episodeId: `${i}`,
    groupId,
    tag: 'Lake',
    tokenIds: Int32Array.of(1, 2, 3),
    lossMask: Uint8Array.of(0, 1, 1),
    turns: [turnOf({ reward: i % 2 ? spread : -spread, tokens: [1, 3] })],
  });
});

/** Its task gradient is the mean size of the advantages, in one direction; its entropy's the coefficient, in another. */
const policy = {
  passes: [] as UpdateBatch[],
  async decomposeGradients(batches: readonly UpdateBatch[], { loss }: GradientSettings) {
    this.passes.push(...batches);
    const gradients = batches.flatMap(({ sequences }, batch) => {
      const sizes = sequences.map(({ advantages }) => mean(Array.from(advantages.subarray(1), Math.abs)));
      return [
        { batch, component: 'task' as const, loss: -mean(sizes), vector: mean(sizes) },
        { batch, component: 'entropy' as const, loss: -1, vector: loss.entropyCoefficient },
      ];
    });
    const products = gradients.flatMap(a =>
      gradients.map(b => (a.component === b.component ? a.vector * b.vector : 0)),
    );
    return { gradients, products: Float64Array.from(products) };
  },
};

const sequencesOf = (settings: RunSettings, own = episodes) =>
  trainingSequences(allEpisodes(own, settings), experienceSettings(settings, new Map()));

t.test('groups without spread have no task gradient, those with the most the largest', async t => {
  const settings = settingsWith();
  const batch = { episodes, sequences: sequencesOf(settings) };
  const { metrics, tables } = await decomposeGradients({ policy, settings }, batch, 'grad_norm');
  t.equal(policy.passes.length, 12, 'every group once, for buckets, all and the signal to noise');
  t.equal(
    policy.passes.reduce((sum, { sequences }) => sum + sequences.length, 0),
    24,
  );
  const near = (name: string, wanted: number) =>
    t.ok(Math.abs(metrics[name] - wanted) < 1e-9, `${name}: ${metrics[name]} is ${wanted}`);
  [0, 0, 0, 1.5, 3.5, 5.5].forEach((task, i) => {
    near(`grad_norm/bucket_${i + 1}/task`, task);
  });
  t.equal(metrics['grad_norm/all/sample_count'], 24);
  t.equal(metrics['grad_norm/all/group_rv_count'], 12);
  t.equal(metrics['grad_norm/bucket_1/zero_std_share'], 1);
  near('grad_norm/all/task', 1.75);
  near('grad_norm/all/per_sample/task', 1.75 / 24);
  near('grad_norm/all/per_token/task', 1.75 / 48);
  near('grad_norm/all/loss/policy', -1.75);
  near('grad_norm/bucket_1/entropy', 0.5);
  near('grad_norm/bucket_1/loss/entropy', -1);
  near('grad_norm/bucket_6/kl', 0);
  near('grad_norm/bucket_6/task_to_reg', 11);
  near('grad_norm/bucket_6/cosine/task', 1);
  t.ok(metrics['grad_norm/all/snr'] > 0);
  t.same(tables['grad_norm/bucket_1/group_rv_table'].columns, ['group', 'std']);
  t.same(
    tables['grad_norm/all/group_rv_table'].rows.map(([group]) => group),
    Array.from({ length: 12 }, (_, i) => i),
  );
});

t.test('cut-off episodes that the loss leaves out have no gradient', async t => {
  const cut = episodes.map(episode => ({
    ...episode,
    turns: episode.turns.map(turn => ({ ...turn, finishReason: 'length' as const })),
  }));
  const settings = settingsWith({ algorithm: { advantage: 'dr_grpo', overlong_mask: true } });
  const batch = { episodes: cut, sequences: sequencesOf(settings, cut) };
  const { metrics } = await decomposeGradients({ policy, settings }, batch, 'grad_norm');
  t.equal(metrics['grad_norm/all/task'], 0);
  t.equal(metrics['grad_norm/all/entropy'], 0);
});

t.test('a batch without groups has no metrics', async t => {
  const settings = settingsWith();
  const nothing = { episodes: [], sequences: [] };
  t.same(await decomposeGradients({ policy, settings }, nothing, 'grad_norm'), { metrics: {}, tables: {} });
});

const settings = {
  ...DEFAULT_LOSS_SETTINGS,
  aggregation: 'token_mean' as const,
  entropyCoefficient: 0.001,
};
const LOGITS = [Math.log(3), 0];

/** Gradients with respect to the two logits of a bandit, each action one token; and the components of the loss. */
function banditGradients(actions: readonly number[], advantages: readonly number[]) {
  const sequences = actions.map((action, i) => ({
    tokenIds: Int32Array.of(action),
    lossMask: Uint8Array.of(1),
    logProbs: Float32Array.of(Math.log(action === 0 ? 0.75 : 0.25)),
    advantages: Float32Array.of(advantages[i]),
  }));
  const counts = countLossTokens(sequences);
  const structure = lossStructure(settings, { value: false, entropy: true });
  const g = new GraphBuilder();
  const logits = g.parameter('logits', [2]);
  const distribution = g.logSoftmax(g.broadcastTo(g.reshape(logits, [1, 2]), [actions.length, 2]));
  const outputs = {
    logProbs: g.takeLast(distribution, g.constant([...actions], [actions.length], 'int32')),
    entropies: g.neg(g.sum(g.mul(g.exp(distribution), distribution), [-1])),
  };
  const inputs = declareLossInputs(g, structure, [actions.length]);
  const { components } = buildUpdateLoss(g, outputs, inputs, structure);
  for (const [name, term] of components) {
    g.output(`${name}.gradient`, gradients(g, term, [logits])[0]);
    g.output(`${name}.loss`, term);
  }
  const rows = sequences.map(sequence => lossInputs(sequence, settings, structure, counts));
  const scalars = lossScalars(settings, counts);
  const feeds: Record<string, number[]> = { logits: LOGITS };
  for (const name of inputs.tokens.keys()) feeds[lossInputName(name)] = rows.map(row => row[name]![0]);
  for (const name of inputs.scalars.keys()) feeds[lossInputName(name)] = [scalars[name]];
  const found = interpret(g.build(), feeds);
  return {
    counts,
    gradients: LOSS_COMPONENTS.filter(name => components.has(name)).map(component => ({
      component,
      vector: Array.from(found[`${component}.gradient`]),
      loss: found[`${component}.loss`][0],
    })),
  };
}

t.test('bandit by hand: a group without spread adds regularizer alone', async t => {
  const measured = [banditGradients([0, 1], [0, 0]), banditGradients([0, 1], [0.5, -0.5])];
  const flat = measured.flatMap(({ gradients }, batch) =>
    gradients.map(gradient => ({ ...gradient, batch })),
  );
  t.same(
    flat.map(({ component }) => component),
    ['task', 'entropy', 'task', 'entropy'],
  );
  const products = Float64Array.from(
    flat.flatMap(a => flat.map(b => a.vector.reduce((sum, x, i) => sum + x * b.vector[i], 0))),
  );
  const cells = measured.map(({ counts }, bucket) => ({ bucket, counts, single: true }));
  const geometry = new GradientGeometry(cells, { gradients: flat, products }, 'token_mean');
  const sizes = { sequences: 2, tokens: 2 };
  const [low, high, all] = [0, 1, undefined].map(bucket => geometry.metrics(bucket, sizes));
  const near = (found: number, wanted: number, what: string) =>
    t.ok(Math.abs(found - wanted) <= 2e-6 * Math.max(1, Math.abs(wanted)), `${what}: ${found} is ${wanted}`);
  near(low.task, 0, 'task of the group without spread');
  near(high.task, 0.353553, 'task of the other');
  near(all.task, 0.176777, 'task of all');
  near(high['per_sample/task'], 0.353553 / 2, 'per sample');
  for (const bucket of [low, high, all]) near(bucket.entropy, 0.000291314, 'entropy');
  near(low.task_to_reg, 0, 'task to regularizer');
  near(high.task_to_reg, 1213.65, 'task to regularizer');
  near(low['share/task'], 0, 'share');
  near(high['share/task'], 1, 'share');
  near(low['share/entropy'], 0.5, 'share');
  near(high['cosine/task'], 1, 'cosine');
  t.notOk('cosine/task' in low, 'nothing has no direction');
  near(high['loss/entropy'], -0.001 * 0.562335, 'loss');
  near(all['loss/total'], all['loss/policy'] + all['loss/entropy'], 'loss');
  t.equal(all['loss/kl'], 0);
  t.equal(all.kl, 0);
  near(high.task * (2 / 32), 0.022097, "RAGEN's number for a mini-batch of 32");
  near(all.snr, 0.5, 'signal to noise');
  t.notOk('snr' in low);
});

t.test('shares sum to 1, and a bucket that pulls the other way has a negative one', async t => {
  const counts = (tokens: number) => ({
    tokens,
    sequences: 1,
    entropyTokens: tokens,
    entropySequences: 1,
  });
  const vectors = [
    [1, 2],
    [-2, 1],
    [4, 4],
  ];
  const products = Float64Array.from(vectors.flatMap(a => vectors.map(b => a[0] * b[0] + a[1] * b[1])));
  const cells = [3, 1, 4].map((tokens, bucket) => ({ bucket, counts: counts(tokens), single: false }));
  const gradients = vectors.map((_, batch) => ({ batch, component: 'task' as const, loss: batch }));
  for (const [aggregation, weights] of [
    ['token_mean', [3 / 8, 1 / 8, 4 / 8]],
    ['seq_mean_token_mean', [1 / 3, 1 / 3, 1 / 3]],
  ] as const) {
    const geometry = new GradientGeometry(cells, { gradients, products }, aggregation);
    const buckets = [0, 1, 2].map(bucket => geometry.metrics(bucket, { sequences: 1, tokens: 1 }));
    t.ok(Math.abs(buckets.reduce((sum, bucket) => sum + bucket['share/task'], 0) - 1) < 1e-12);
    const all = [0, 1].map(i => vectors.reduce((sum, vector, b) => sum + weights[b] * vector[i], 0));
    const found = geometry.metrics(undefined, { sequences: 3, tokens: 8 });
    t.ok(Math.abs(found.task - Math.hypot(...all)) < 1e-12, aggregation);
    t.ok(Math.abs(found['loss/policy'] - (weights[1] + 2 * weights[2])) < 1e-12);
    t.ok(buckets[1]['share/task'] < 0 || buckets[1]['cosine/task'] > 0);
    t.notOk('snr' in found, 'no group was measured alone');
  }
});

const groups = Array.from({ length: 14 }, (_, i) => ({
  groupId: 100 + i,
  rewardStd: (i * 5) % 14,
  sequences: [2 * i, 2 * i + 1],
}));
const QUANTILE = { count: 6, mode: 'quantile' } as const;
const sizes = (count: number, wanted = 6) =>
  planBuckets(groups.slice(0, count), { count: wanted, mode: 'quantile' }).map(
    bucket => bucket.groups.length,
  );

t.test('groups fall into equal parts by spread, the last with the remainder', async t => {
  t.same(sizes(14), [2, 2, 2, 2, 2, 4]);
  t.same(sizes(8), [1, 1, 1, 1, 1, 3]);
  const buckets = planBuckets(groups, QUANTILE);
  t.same(
    buckets.map(bucket => bucket.name),
    [1, 2, 3, 4, 5, 6].map(i => `bucket_${i}`),
  );
  t.same(
    buckets.flatMap(bucket => bucket.groups.map(group => group.rewardStd)),
    Array.from({ length: 14 }, (_, i) => i),
  );
});

t.test('with fewer groups than buckets each group is one', async t => {
  t.same(sizes(4), [1, 1, 1, 1]);
  t.same(sizes(1), [1]);
  t.same(sizes(14, 3), [4, 4, 6]);
});

t.test('ties are sorted by the number of the group', async t => {
  const alike = [3, 1, 2].map(groupId => ({ groupId, rewardStd: 0, sequences: [] }));
  t.same(
    planBuckets(alike, QUANTILE).map(bucket => bucket.groups[0].groupId),
    [1, 2, 3],
  );
});

t.test('fixed borders leave out empty buckets', async t => {
  const stds = [0, 0.5, 1, 2.5, 5, 9].map((rewardStd, groupId) => ({ groupId, rewardStd, sequences: [] }));
  t.same(
    planBuckets(stds, { count: 6, mode: 'fixed_rv' }).map(({ name, groups }) => [name, groups.length]),
    [
      ['bucket_1', 2],
      ['bucket_2', 1],
      ['bucket_3', 1],
      ['bucket_6', 2],
    ],
  );
});

t.test('cells hold every group once, some of them alone', async t => {
  const buckets = planBuckets(groups, QUANTILE);
  for (const [singles, cells] of [
    [0, 6],
    [16, 14],
    [6, 12],
  ]) {
    const planned = planCells(buckets, singles);
    t.equal(planned.length, cells, `${singles} alone`);
    t.same(
      planned.flatMap(cell => cell.groups.map(group => group.groupId)).sort(),
      groups.map(group => group.groupId),
    );
    t.ok(planned.every(cell => cell.groups.every(group => buckets[cell.bucket].groups.includes(group))));
  }
});

t.test('metrics of a bucket', async t => {
  const bucket = {
    name: 'bucket_1',
    groups: [0, 0, 3].map((rewardStd, groupId) => ({ groupId, rewardStd, sequences: [groupId, 9] })),
  };
  t.same(bucketMetrics('grad_norm', bucket, 12), {
    'grad_norm/bucket_1/sample_count': 6,
    'grad_norm/bucket_1/sample_pct': 0.5,
    'grad_norm/bucket_1/group_rv_count': 3,
    'grad_norm/bucket_1/zero_std_share': 2 / 3,
    'grad_norm/bucket_1/reward_std_mean': 1,
    'grad_norm/bucket_1/reward_std_min': 0,
    'grad_norm/bucket_1/reward_std_max': 3,
  });
});

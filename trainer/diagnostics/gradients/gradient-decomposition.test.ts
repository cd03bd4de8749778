import t from 'tap';
import { validateConfig } from '../../../shared/config.ts';
import type { Json } from '../../../shared/json.ts';
import { mean } from '../../algorithms/statistics.ts';
import { RunSettings } from '../../config/settings.ts';
import { episodeOf, turnOf } from '../../data/episodes.test-data.ts';
import { experienceSettings, trainingSequences } from '../../data/experience.ts';
import { allEpisodes } from '../../data/filtering.ts';
import type { GradientSettings, UpdateBatch } from '../../policy/policy.ts';
import { decomposeGradients } from './gradient-decomposition.ts';

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

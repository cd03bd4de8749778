import t from 'tap';
import { validateConfig } from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';
import { RunSettings } from '../config/settings.ts';
import { episodeOf, turnOf } from '../data/episodes.test-data.ts';
import type { GradientSettings, UpdateBatch } from '../policy/policy.ts';
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

/** Its gradient is the sum of all advantages' sizes, and the coefficients. */
const policy = {
  calls: 0,
  async measure({ sequences }: UpdateBatch, { loss }: GradientSettings) {
    this.calls++;
    const sizes = sequences.map(({ advantages }) => advantages.reduce((sum, a) => sum + Math.abs(a), 0));
    const task = sizes.reduce((sum, size) => sum + size, 0);
    return {
      'actor/grad_norm': task + loss.entropyCoefficient + loss.kl.coefficient,
      'actor/pg_loss': -task,
      'actor/entropy': 3,
    };
  },
};

t.test(
  'groups without spread have no task gradient, those with the most the largest; all are measured before the filter',
  async t => {
    const parts = { policy, settings: settingsWith(), actionTokens: new Map(), later: {} };
    const metrics = await decomposeGradients(parts, episodes);
    t.equal(policy.calls, 7 * 2, 'task and entropy of six buckets and of all; no KL is on');
    t.same(
      [1, 2, 3, 4, 5, 6].map(bucket => metrics[`grad_norm/bucket_${bucket}/task`]),
      [0, 0, 0, 4 * 3, 4 * 7, 4 * 11],
    );
    t.equal(metrics['grad_norm/all/sample_count'], 24);
    t.equal(metrics['grad_norm/all/task'], 84);
    t.equal(metrics['grad_norm/all/per_sample/task'], 84 / 24);
    t.equal(metrics['grad_norm/all/per_token/task'], 84 / 48);
    t.equal(metrics['grad_norm/all/loss/task'], -84);
    t.equal(metrics['grad_norm/bucket_1/entropy'], 0.5);
    t.equal(metrics['grad_norm/bucket_1/loss/entropy'], -1.5);
    t.equal(metrics['grad_norm/bucket_6/kl'], 0);
  },
);

t.test('cut-off episodes that the loss leaves out have no gradient', async t => {
  const cut = episodes.map(episode => ({
    ...episode,
    turns: episode.turns.map(turn => ({ ...turn, finishReason: 'length' as const })),
  }));
  const settings = settingsWith({ algorithm: { advantage: 'dr_grpo', overlong_mask: true } });
  const metrics = await decomposeGradients({ policy, settings, actionTokens: new Map(), later: {} }, cut);
  t.equal(metrics['grad_norm/all/task'], 0);
  t.equal(metrics['grad_norm/all/entropy'], 0);
});

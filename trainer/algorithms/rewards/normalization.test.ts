import { readFileSync } from 'node:fs';
import t from 'tap';
import {
  normalizeRewards,
  type RewardedEpisode,
  type RewardGrouping,
  type RewardMethod,
} from './normalization.ts';

interface GoldenEpisode {
  readonly initial: { readonly group_id: number; readonly tag: string }[];
  readonly episode_reward_raw: number[];
  readonly episode_penalty: number[];
  readonly normalised: Record<string, number[]>;
}

const file = new URL('../../../test/golden/manager_episodes.json', import.meta.url);
const { episodes } = JSON.parse(readFileSync(file, 'utf8')) as { episodes: GoldenEpisode[] };

episodes.forEach((golden, number) => {
  t.test(`golden rollout ${number}: three groupings by four methods`, async t => {
    const batch: RewardedEpisode[] = golden.initial.map(({ group_id, tag }, i) => ({
      reward: golden.episode_reward_raw[i] + golden.episode_penalty[i],
      groupId: group_id,
      tag,
    }));
    for (const [key, wanted] of Object.entries(golden.normalised)) {
      const [grouping, method] = key.split('/') as [RewardGrouping, RewardMethod];
      const found = normalizeRewards(batch, { grouping, method });
      t.ok(
        wanted.every((value, i) => Math.abs(found[i] - value) < 1e-6),
        key,
      );
    }
  });
});

t.test('equal rewards normalize to 0', async t => {
  const batch = [1, 1, 1].map(reward => ({ reward, groupId: 0, tag: 'a' }));
  for (const method of ['mean', 'mean_std', 'asym_clip'] as const) {
    t.same(normalizeRewards(batch, { grouping: 'state', method }), new Float64Array(3), method);
  }
});

t.test('asym_clip lets good episodes stand out further than bad ones', async t => {
  const rewards = [...new Array<number>(30).fill(0), 100, -100];
  const batch = rewards.map(reward => ({ reward, groupId: 0, tag: 'a' }));
  const found = normalizeRewards(batch, { grouping: 'batch', method: 'asym_clip' });
  t.equal(found[30], 3);
  t.equal(found[31], -1);
});

t.test('an unknown choice is refused with the valid ones', async t => {
  const batch = [{ reward: 1, groupId: 0, tag: 'a' }];
  t.throws(() => normalizeRewards(batch, { grouping: 'group' as RewardGrouping, method: 'mean' }), {
    message: 'no reward grouping "group"; choose one of state, batch, inductive',
  });
  t.throws(() => normalizeRewards(batch, { grouping: 'batch', method: 'std' as RewardMethod }), {
    message: 'no reward method "std"; choose one of identity, mean, mean_std, asym_clip',
  });
});

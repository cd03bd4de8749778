import t from 'tap';
import { rewardGroup } from './groups.test-data.ts';
import { estimateAdvantages } from './registry.ts';

t.test('with equal lengths the baseline is the mean', async t => {
  const batch = rewardGroup([0, 1, 5]);
  const opo = estimateAdvantages('opo', batch).advantages;
  const mean = estimateAdvantages('dr_grpo', batch).advantages;
  opo.forEach((array, i) => {
    t.ok(Math.abs(array[0] - mean[i][0]) < 1e-12);
  });
});

t.test('an episode’s length counts all of its samples', async t => {
  const sample = (reward: number, tokens: number, episodeId: string) => ({
    lossMask: new Array<number>(tokens).fill(1),
    rewards: [reward, ...new Array<number>(tokens - 1).fill(0)],
    groupId: 0,
    episodeId,
  });
  const cut = estimateAdvantages('opo', [sample(1, 1, 'a'), sample(1, 2, 'a'), sample(0, 1, 'b')]).advantages;
  t.same(
    cut.map(array => array[0]),
    [0.25, 0.25, -0.75],
  );
});

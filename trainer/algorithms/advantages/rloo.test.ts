import t from 'tap';
import { rewardGroup } from './groups.test-data.ts';
import { estimateAdvantages } from './registry.ts';

t.test('the baseline is the mean of the others', async t => {
  const rewards = [3, 5, 10];
  const found = estimateAdvantages('rloo', rewardGroup(rewards)).advantages.map(array => array[0]);
  rewards.forEach((reward, i) => {
    const others = rewards.filter((_, k) => k !== i);
    t.ok(Math.abs(found[i] - (reward - (others[0] + others[1]) / 2)) < 1e-12);
  });
});

t.test('a group of one keeps its reward', async t => {
  t.equal(estimateAdvantages('rloo', rewardGroup([4])).advantages[0][0], 4);
});

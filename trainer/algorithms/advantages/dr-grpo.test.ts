import t from 'tap';
import { rewardGroup } from './groups.test-data.ts';
import { estimateAdvantages } from './registry.ts';

t.test('advantages keep the scale of the rewards', async t => {
  const advantages = (rewards: number[]) =>
    estimateAdvantages('dr_grpo', rewardGroup(rewards)).advantages.map(array => array[0]);
  t.same(advantages([0, 1]), [-0.5, 0.5]);
  t.same(advantages([0, 10]), [-5, 5]);
});

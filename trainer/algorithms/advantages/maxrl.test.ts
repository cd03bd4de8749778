import t from 'tap';
import { rewardGroup } from './groups.test-data.ts';
import { estimateAdvantages } from './registry.ts';

const run = (rewards: number[]) =>
  estimateAdvantages('maxrl', rewardGroup(rewards)).advantages.map(array => array[0]);

t.test('a rare success weighs more than a common one', async t => {
  t.equal(run([1, 0, 0, 0])[0], 3);
  t.equal(run([1, 1, 1, 0])[0], 1 / 3);
});

t.test('a group without success teaches nothing', async t => {
  t.same(run([0, 0, 0]), [0, 0, 0]);
});

t.test('negative rewards are refused with the way out', async t => {
  t.throws(() => run([1, -0.1]), {
    message: /^maxrl needs rewards ≥ 0, but an episode of group 0 has -0.1: set/,
  });
});

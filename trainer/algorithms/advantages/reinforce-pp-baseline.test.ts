import t from 'tap';
import { rewardGroup } from './groups.test-data.ts';
import { estimateAdvantages } from './registry.ts';

t.test('a group baseline removes what makes one group easier than another', async t => {
  const batch = [...rewardGroup([0, 1], 'hard'), ...rewardGroup([10, 11], 'easy')];
  const found = estimateAdvantages('reinforce_pp_baseline', batch).advantages.map(array => array[0]);
  t.ok(Math.abs(found[0] - found[2]) < 1e-12 && Math.abs(found[1] - found[3]) < 1e-12);
  const raw = estimateAdvantages('reinforce_pp_baseline', batch, { whiten: false }).advantages;
  t.same(
    raw.map(array => array[0]),
    [-0.5, 0.5, -0.5, 0.5],
  );
});

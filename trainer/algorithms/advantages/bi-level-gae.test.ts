import t from 'tap';
import { estimateAdvantages } from './registry.ts';

const sequence = {
  lossMask: [1, 1, 0, 1, 1, 0, 1],
  rewards: [0, 0, 0, 0, 0, 0, 1],
  values: [0.1, 0.2, 5, 0.3, 0.4, 5, 0.5],
  turnEnds: [1, 4, 6],
  groupId: 0,
};

t.test('a turn without reward is still a turn', async t => {
  const settings = { gamma: 1, lambda: 1, highLevelGamma: 0.5, whiten: false };
  const { returns } = estimateAdvantages('bi_level_gae', [sequence], settings);
  t.same(Array.from(returns[0]), [0.25, 0.25, 0, 0.5, 0.5, 0, 1]);
});

t.test('with both discounts and λ 1 it gives the returns of GAE', async t => {
  const settings = { gamma: 1, lambda: 1, highLevelGamma: 1, whiten: false };
  const two = estimateAdvantages('bi_level_gae', [sequence], settings).returns[0];
  const one = estimateAdvantages('gae', [sequence], settings).returns[0];
  sequence.lossMask.forEach((on, k) => {
    if (on) t.ok(Math.abs(two[k] - one[k]) < 1e-12);
  });
});

t.test('turn ends must cover the sampled tokens', async t => {
  const refuse = (turnEnds: number[], message: string) =>
    t.throws(() => estimateAdvantages('bi_level_gae', [{ ...sequence, turnEnds }]), { message });
  refuse([1, 4], 'token 6 was sampled after the last turn end 4: every sampled token belongs to a turn');
  refuse([1, 5, 6], 'turn end 5 is not a sampled token');
  refuse([4, 1, 6], 'turn ends must ascend, got 4, 1, 6');
});

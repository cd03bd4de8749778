import t from 'tap';
import { rewardGroup } from './groups.test-data.ts';
import { estimateAdvantages } from './registry.ts';

t.test('groups are compared each for itself', async t => {
  const batch = [...rewardGroup([0, 1], 'a'), ...rewardGroup([100, 102], 'b')];
  const [a, b, c, d] = estimateAdvantages('grpo', batch).advantages.map(array => array[0]);
  t.ok(Math.abs(a - c) < 1e-5 && Math.abs(b - d) < 1e-5);
  t.ok(a < 0 && b > 0);
});

t.test('an episode cut into many samples counts once', async t => {
  const sample = (reward: number, episodeId: number) => ({
    lossMask: [1],
    rewards: [reward],
    groupId: 0,
    episodeId,
  });
  const cut = [sample(1, 1), sample(1, 1), sample(1, 1), sample(0, 2)];
  const whole = [sample(1, 1), sample(0, 2)];
  const many = estimateAdvantages('grpo', cut).advantages.map(array => array[0]);
  const one = estimateAdvantages('grpo', whole).advantages.map(array => array[0]);
  t.same(many, [one[0], one[0], one[0], one[1]]);
});

t.test('observations get no advantage', async t => {
  const batch = [
    { lossMask: [1, 0, 1], rewards: [0, 0, 1], groupId: 0 },
    { lossMask: [1, 0, 1], rewards: [0, 0, 0], groupId: 0 },
  ];
  const [first] = estimateAdvantages('grpo', batch).advantages;
  t.equal(first[1], 0);
  t.equal(first[0], first[2]);
});

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

t.test('advantages keep the scale of the rewards', async t => {
  const advantages = (rewards: number[]) =>
    estimateAdvantages('dr_grpo', rewardGroup(rewards)).advantages.map(array => array[0]);
  t.same(advantages([0, 1]), [-0.5, 0.5]);
  t.same(advantages([0, 10]), [-5, 5]);
});

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

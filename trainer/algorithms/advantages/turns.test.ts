import t from 'tap';
import type { AdvantageSequence } from './estimator.ts';
import { estimateAdvantages } from './registry.ts';
import { turnOfToken, turnReturns } from './turns.ts';

const sequence = { lossMask: [0, 1, 1, 0, 1], rewards: [0, 0.5, 1, 0, 4], turnEnds: [2, 4], groupId: 0 };

t.test('tokens know their turn, turns their discounted return', async t => {
  t.same(Array.from(turnOfToken(sequence)), [-1, 0, 0, -1, 1]);
  t.same(Array.from(turnReturns(sequence, 0.5)), [3.5, 4]);
});

t.test('each turn’s return is normalized over the turns of the batch, however long they are', async t => {
  const batch = [
    { lossMask: [1, 1, 1, 0, 1], rewards: [0, 0, 1, 0, 2], turnEnds: [2, 4], groupId: 0 },
    { lossMask: [1], rewards: [0], turnEnds: [0], groupId: 1 },
  ];
  const { advantages, returns } = estimateAdvantages('rebn', batch, { gamma: 0.5 });
  t.same(
    returns.map(array => Array.from(array)),
    [[2, 2, 2, 0, 2], [0]],
  );
  const z = (2 - 4 / 3) / Math.sqrt(8 / 9);
  advantages[0].forEach((a, k) => {
    t.ok(Math.abs(a - (k === 3 ? 0 : z)) < 1e-8);
  });
  t.ok(Math.abs(advantages[1][0] + 2 * z) < 1e-8);
});

const episode = (rewards: number[], states: string[], groupId = 0): AdvantageSequence => ({
  lossMask: rewards.map(() => 1),
  rewards,
  turnEnds: rewards.map((_, k) => k),
  states,
  groupId,
});

t.test('steps are compared only among equal states of the group', async t => {
  const batch = [
    episode([0, 1], ['s', 'x']),
    episode([0, 0], ['s', 'y']),
    episode([0, 7], ['s', 'x'], 1),
    episode([0, 7], ['s', 'x'], 1),
  ];
  const settings = { gamma: 1, stdNormalize: false };
  const found = estimateAdvantages('gigpo', batch, settings).advantages.map(array => Array.from(array));
  t.same(found, [
    [1, 0.5],
    [-1, -0.5],
    [0, 0],
    [0, 0],
  ]);
  const weightless = estimateAdvantages('gigpo', batch, { ...settings, stepWeight: 0 }).advantages;
  const plain = estimateAdvantages('dr_grpo', batch).advantages;
  t.same(weightless, plain);
});

t.test('every token of a turn has its turn’s advantage, observations none', async t => {
  const long = (reward: number): AdvantageSequence => ({
    lossMask: [1, 1, 0, 1],
    rewards: [0, 0, 0, reward],
    turnEnds: [1, 3],
    states: ['s', `${reward}`],
    groupId: 0,
  });
  const [found] = estimateAdvantages('gigpo', [long(1), long(0)], { stdNormalize: false }).advantages;
  t.same(Array.from(found), [1, 1, 0, 0.5]);
});

t.test('episodes must come whole, with a state for each turn', async t => {
  const cut = { ...episode([1], ['s']), episodeId: 3 };
  t.throws(() => estimateAdvantages('gigpo', [cut, cut]), { message: /use context mode full/ });
  // Another server gave the same id to an episode of another group.
  t.doesNotThrow(() => estimateAdvantages('gigpo', [cut, { ...cut, groupId: 1 }]));
  t.throws(() => estimateAdvantages('gigpo', [episode([1, 2], ['s'])]), {
    message: 'gigpo needs the state before each turn, got 1 for 2',
  });
});

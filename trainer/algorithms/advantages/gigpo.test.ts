import t from 'tap';
import type { AdvantageSequence } from './estimator.ts';
import { estimateAdvantages } from './registry.ts';

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

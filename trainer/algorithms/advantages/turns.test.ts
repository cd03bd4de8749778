import t from 'tap';
import { placeTurnRewards, turnOfToken, turnReturns } from './turns.ts';

const sequence = { lossMask: [0, 1, 1, 0, 1], rewards: [0, 0.5, 1, 0, 4], turnEnds: [2, 4], groupId: 0 };

t.test('tokens know their turn, turns their discounted return', async t => {
  t.same(Array.from(turnOfToken(sequence)), [-1, 0, 0, -1, 1]);
  t.same(Array.from(turnReturns(sequence, 0.5)), [3.5, 4]);
});

t.test('turn rewards are placed at turn ends', async t => {
  t.same(Array.from(placeTurnRewards(5, [2, 4], [1, -1])), [0, 0, 1, 0, -1]);
  t.throws(() => placeTurnRewards(5, [2, 4], [1]), { message: '1 turn rewards for 2 turn ends' });
});

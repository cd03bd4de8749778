import t from 'tap';
import { turnOfToken, turnReturns } from './turns.ts';

const sequence = { lossMask: [0, 1, 1, 0, 1], rewards: [0, 0.5, 1, 0, 4], turnEnds: [2, 4], groupId: 0 };

t.test('tokens know their turn, turns their discounted return', async t => {
  t.same(Array.from(turnOfToken(sequence)), [-1, 0, 0, -1, 1]);
  t.same(Array.from(turnReturns(sequence, 0.5)), [3.5, 4]);
});

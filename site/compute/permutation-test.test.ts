import t from 'tap';
import { pairedTest, unpairedTest } from './permutation-test.ts';

t.test('pairs: the share of sign flips that differ as much', async t => {
  t.same(pairedTest([1, 1, 1]), { difference: 1, p: 0.25, least: 0.25 });
  t.same(pairedTest([0.3, -0.1, 0.2, 0.4]), { difference: 0.2, p: 0.25, least: 0.125 });
  t.match(pairedTest([0, 0]), { difference: 0, p: 1 });
  t.match(pairedTest([0.5]), { p: 1, least: 1 });
  t.equal(pairedTest([]), undefined);
  t.equal(pairedTest(Array(17).fill(1)), undefined);
});

t.test('groups: the share of assignments that differ as much', async t => {
  // Of the 20 ways to choose three of six, {4, 5, 6} and {1, 2, 3} differ by 3.
  t.same(unpairedTest([4, 5, 6], [1, 2, 3]), { difference: 3, p: 0.1, least: 0.1 });
  t.same(unpairedTest([9], [1, 2, 3]), { difference: 7, p: 0.25, least: 0.25 });
  t.match(unpairedTest([1, 1], [1, 1]), { difference: 0, p: 1 });
  t.equal(unpairedTest([], [1]), undefined);
  t.equal(unpairedTest(Array(9).fill(1), Array(8).fill(1)), undefined);
});

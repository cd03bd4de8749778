import t from 'tap';
import { rewardGroup } from './groups.test-data.ts';
import { lengthReweight, softReweight, softWeights, zeroTaskAdvantage } from './reweight.ts';

t.test('groups count by their spread relative to the largest', async t => {
  const batch = [
    ...rewardGroup([0, 4], 'wide'),
    ...rewardGroup([0, 1], 'narrow'),
    ...rewardGroup([2, 2], 'flat'),
  ];
  t.same(Array.from(softWeights(batch)), [1, 1, 0.25, 0.25, 0, 0]);
  const ones = batch.map(() => Float64Array.of(2));
  t.same(
    softReweight(ones, batch).map(array => array[0]),
    [2, 2, 0.5, 0.5, 0, 0],
  );
  t.same(Array.from(softWeights(rewardGroup([3, 3]))), [1, 1]);
});

t.test('a sequence of twice the mean length counts half per token', async t => {
  const sequence = (tokens: number) => ({
    lossMask: [0, ...new Array<number>(tokens).fill(1)],
    rewards: new Array<number>(tokens + 1).fill(0),
    groupId: 0,
  });
  const batch = [sequence(6), sequence(2), sequence(1)];
  const found = lengthReweight(
    batch.map(() => Float64Array.of(1)),
    batch,
  );
  [0.5, 1.5, 3].forEach((wanted, i) => {
    t.ok(Math.abs(found[i][0] - wanted) < 1e-5);
  });
});

t.test('zero task advantage keeps the shape', async t => {
  t.same(zeroTaskAdvantage([Float64Array.of(1, 2)]), [new Float64Array(2)]);
});

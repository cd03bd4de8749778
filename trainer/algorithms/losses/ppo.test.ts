import t from 'tap';
import { ppoLoss } from './policy-reference.test-data.ts';

const clip = { clipLow: 0.2, clipHigh: 0.28, dualClip: 3 };
const run = (ratio: number, advantage: number, settings = clip) =>
  ppoLoss(
    { lossMask: [1], logProbs: [Math.log(ratio)], oldLogProbs: [0], advantages: [advantage] },
    settings,
  );

t.test('the gradient stops where the ratio has moved far enough, and only there', async t => {
  t.equal(run(1.3, 1).derivatives[0], 0, 'a good token that became likely enough');
  t.not(run(0.5, 1).derivatives[0], 0, 'a good token that became unlikely is pulled back');
  t.equal(run(0.7, -1).derivatives[0], 0, 'a bad token that became unlikely enough');
  t.not(run(1.3, -1).derivatives[0], 0, 'a bad token that became likely is pushed down');
  t.not(run(1.25, 1).derivatives[0], 0, 'clip-higher leaves room above 1.2');
});

t.test('the dual clip bounds the loss of bad tokens that became very likely', async t => {
  const bounded = run(10, -1);
  t.equal(bounded.losses[0], 3);
  t.equal(bounded.derivatives[0], 0);
  t.equal(bounded.clippedLower[0], 1);
  const free = run(10, -1, { ...clip, dualClip: 0 });
  t.ok(Math.abs(free.losses[0] - 10) < 1e-12);
  t.equal(free.clippedLower[0], 0);
});

t.test('absurd log-ratios stay finite and masked tokens are not read', async t => {
  const output = ppoLoss(
    { lossMask: [1, 0], logProbs: [0, Number.NaN], oldLogProbs: [-900, 0], advantages: [-1, 1] },
    { ...clip, dualClip: 0 },
  );
  t.ok(Math.abs(output.losses[0] - Math.exp(20)) < 1);
  t.equal(output.derivatives[0], 0);
  t.equal(output.losses[1], 0);
});

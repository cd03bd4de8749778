import t from 'tap';
import { cispoLoss, gspoLoss, ppoLoss } from './policy-reference.test-data.ts';
import { valueLoss } from './reference.test-data.ts';

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

t.test('tokens that PPO would drop keep a gradient of bounded size', async t => {
  const clip = { clipLow: 0.2, clipHigh: 0.28, dualClip: 0 };
  const input = { lossMask: [1, 1], logProbs: [-1, -1], oldLogProbs: [-2, 0], advantages: [1, -1] };
  t.same(Array.from(ppoLoss(input, clip).derivatives).map(Math.abs), [0, 0]);
  t.same(Array.from(cispoLoss(input, clip).derivatives), [-1.28, 0.8]);
  t.same(Array.from(cispoLoss(input, clip).clipped), [1, 1]);
});

const gspoClip = { clipLow: 0.2, clipHigh: 0.28, dualClip: 3 };

t.test('GSPO clips a shifted sequence as one and ignores a single outlier', async t => {
  const run = (logProbs: number[]) =>
    gspoLoss(
      { lossMask: logProbs.map(() => 1), logProbs, oldLogProbs: [0, 0, 0, 0], advantages: [1, 1, 1, 1] },
      gspoClip,
    );
  const wild = run([0.6, -0.2, -0.2, -0.2]);
  t.ok(wild.losses.every(loss => Math.abs(loss + 1) < 1e-12));
  t.same(Array.from(wild.clipped), [0, 0, 0, 0]);
  t.same(Array.from(run([0.6, 0.4, 0.4, 0.2]).clipped), [1, 1, 1, 1]);
});

t.test('the ratio is the mean over trained tokens', async t => {
  const input = { logProbs: [0.2, Number.NaN, 0], oldLogProbs: [0, 0, 0], advantages: [1, 1, 1] };
  const { losses } = gspoLoss({ lossMask: [1, 0, 1], ...input }, gspoClip);
  t.ok(Math.abs(losses[0] + Math.exp(0.1)) < 1e-12);
  t.equal(losses[1], 0);
  t.same(Array.from(gspoLoss({ lossMask: [0, 0, 0], ...input }, gspoClip).losses), [0, 0, 0]);
});

t.test('a prediction may not improve by moving further than the clip from its old value', async t => {
  const far = valueLoss(1, 0, 1, 0.5);
  t.same(far, { loss: 0.125, derivative: 0, clipped: true });
  const worse = valueLoss(-1, 0, 1, 0.5);
  t.same(worse, { loss: 2, derivative: -2, clipped: false });
});

t.test('clip 0 is plain regression', async t => {
  t.same(valueLoss(1, 0, 1, 0), { loss: 0, derivative: 0, clipped: false });
});

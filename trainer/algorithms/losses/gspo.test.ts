import t from 'tap';
import { gspoLoss } from './policy-reference.test-data.ts';

const clip = { clipLow: 0.2, clipHigh: 0.28, dualClip: 3 };

t.test('GSPO clips a shifted sequence as one and ignores a single outlier', async t => {
  const run = (logProbs: number[]) =>
    gspoLoss(
      { lossMask: logProbs.map(() => 1), logProbs, oldLogProbs: [0, 0, 0, 0], advantages: [1, 1, 1, 1] },
      clip,
    );
  const wild = run([0.6, -0.2, -0.2, -0.2]);
  t.ok(wild.losses.every(loss => Math.abs(loss + 1) < 1e-12));
  t.same(Array.from(wild.clipped), [0, 0, 0, 0]);
  t.same(Array.from(run([0.6, 0.4, 0.4, 0.2]).clipped), [1, 1, 1, 1]);
});

t.test('the ratio is the mean over trained tokens', async t => {
  const input = { logProbs: [0.2, Number.NaN, 0], oldLogProbs: [0, 0, 0], advantages: [1, 1, 1] };
  const { losses } = gspoLoss({ lossMask: [1, 0, 1], ...input }, clip);
  t.ok(Math.abs(losses[0] + Math.exp(0.1)) < 1e-12);
  t.equal(losses[1], 0);
  t.same(Array.from(gspoLoss({ lossMask: [0, 0, 0], ...input }, clip).losses), [0, 0, 0]);
});

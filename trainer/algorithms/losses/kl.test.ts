import t from 'tap';
import { gradients } from '../../tensor/graph/gradients.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import { interpret } from '../../tensor/graph/interpreter.test-data.ts';
import { klEstimate, klLoss } from './kl.ts';
import { klDerivative } from './reference.test-data.ts';
import { KL_ESTIMATORS } from './settings.ts';

const policy = [0.5, 0.5];
const reference = [0.9, 0.1];
const exact = policy.reduce((sum, p, i) => sum + p * Math.log(p / reference[i]), 0);
const expectation = (estimator: 'k1' | 'k2' | 'k3') =>
  policy.reduce((sum, p, i) => sum + p * klEstimate(estimator, Math.log(p / reference[i])), 0);

t.test('k1 and k3 are unbiased on a categorical, k2 is not', async t => {
  t.ok(Math.abs(expectation('k1') - exact) < 1e-12);
  t.ok(Math.abs(expectation('k3') - exact) < 1e-12);
  t.ok(Math.abs(expectation('k2') - exact) > 0.01);
  t.ok(Math.abs(exact - 0.5108256237659907) < 1e-12, 'the value of closed_form.json');
});

t.test('equal policies have no distance; k2, k3 and abs are never negative', async t => {
  for (const estimator of KL_ESTIMATORS) t.equal(klEstimate(estimator, 0), 0, estimator);
  for (const estimator of ['k2', 'k3', 'abs'] as const) {
    for (const d of [-3, -0.01, 0.01, 3]) t.ok(klEstimate(estimator, d) > 0, `${estimator} of ${d}`);
  }
});

t.test('k3 is clamped to 10 and flat there', async t => {
  t.equal(klEstimate('k3', -50), 10);
  t.equal(klDerivative('k3', -50), 0);
  t.equal(klEstimate('k3', 5e4), 10);
});

t.test('derivatives match finite differences', async t => {
  const STEP = 1e-6;
  for (const estimator of KL_ESTIMATORS) {
    for (const d of [-1.3, -0.02, 0.4, 2]) {
      const numeric = (klEstimate(estimator, d + STEP) - klEstimate(estimator, d - STEP)) / (2 * STEP);
      t.ok(Math.abs(numeric - klDerivative(estimator, d)) < 1e-8, `${estimator} at ${d}`);
    }
  }
});

t.test('the graph follows the numbers on both sides of the series and of the clamps', async t => {
  const points = [-30, -3, -0.051, -0.049, -1e-4, 0, 1e-5, 0.049, 0.051, 2, 9, 30];
  for (const estimator of KL_ESTIMATORS) {
    const g = new GraphBuilder();
    const d = g.input('d', 'float32', [points.length]);
    const kl = klLoss(g, estimator, d);
    g.output('kl', kl);
    g.output('gradient', gradients(g, g.sum(kl), [d])[0]);
    const found = interpret(g.build(), { d: points });
    points.forEach((point, i) => {
      t.ok(Math.abs(found.kl[i] - klEstimate(estimator, point)) < 1e-8, `${estimator} of ${point}`);
      const slope = klDerivative(estimator, point);
      t.ok(Math.abs(found.gradient[i] - slope) < 1e-7, `slope of ${estimator} at ${point}`);
    });
  }
});

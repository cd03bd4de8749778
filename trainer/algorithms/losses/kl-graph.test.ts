import t from 'tap';
import { gradients } from '../../tensor/graph/gradients.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import { interpret } from '../../tensor/graph/reference/interpreter.ts';
import { klDerivative, klEstimate } from './kl.ts';
import { klGraph } from './kl-graph.ts';
import { KL_ESTIMATORS } from './settings.ts';

t.test('the graph follows the numbers on both sides of the series and of the clamps', async t => {
  const points = [-30, -3, -0.051, -0.049, -1e-4, 0, 1e-5, 0.049, 0.051, 2, 9, 30];
  for (const estimator of KL_ESTIMATORS) {
    const g = new GraphBuilder();
    const d = g.input('d', 'float32', [points.length]);
    const kl = klGraph(g, estimator, d);
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

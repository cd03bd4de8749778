import t from 'tap';
import { caseGraph, operationCases } from './cases.test-data.ts';
import { gradients } from './gradients.ts';
import { GraphBuilder, operations } from './graph.ts';
import { interpret } from './interpreter.test-data.ts';
import { deviceCases, quantizedCases } from './optional-cases.test-data.ts';

const STEP = 1e-5;
const TOLERANCE = 1e-7;

t.test('every operation has a case', async t => {
  const covered = new Set(
    [...operationCases, ...deviceCases, ...quantizedCases].map(({ operation }) => operation),
  );
  t.strictSame(
    [...operations.keys()].filter(name => !covered.has(name)),
    [],
  );
});

for (const operationCase of [...operationCases, ...quantizedCases]) {
  if (
    operationCase.differentiate.length === 0 ||
    operations.get(operationCase.operation)?.gradient === undefined
  )
    continue;
  t.test(
    `the gradient of ${operationCase.operation} ${operationCase.title} equals central differences`,
    async t => {
      const graph = caseGraph(operationCase);
      const values = Object.fromEntries(
        Object.entries(operationCase.inputs).map(([name, input]) => [name, Float64Array.from(input.values)]),
      );
      const analytic = interpret(graph, values);
      const loss = (): number => interpret(graph, values).loss[0];
      for (const name of operationCase.differentiate) {
        const input = values[name];
        const wrong: string[] = [];
        for (let i = 0; i < input.length; i++) {
          const center = input[i];
          input[i] = center + STEP;
          const above = loss();
          input[i] = center - STEP;
          const below = loss();
          input[i] = center;
          const numeric = (above - below) / (2 * STEP);
          const gradient = analytic[`${name}.grad`][i];
          if (!(Math.abs(numeric - gradient) <= TOLERANCE * Math.max(1, Math.abs(numeric)))) {
            wrong.push(`[${i}] is ${gradient}, differences give ${numeric}`);
          }
        }
        t.strictSame(wrong, [], `gradient of ${name}`);
      }
    },
  );
}

t.test('gradients add up over all the ways a tensor is used', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', []);
  const loss = g.add(g.mul(x, x), g.mul(g.exp(x), x));
  g.output('x.grad', gradients(g, loss, [x])[0]);
  const actual = interpret(g.build(), { x: [0.5] })['x.grad'][0];
  t.ok(Math.abs(actual - (2 * 0.5 + Math.exp(0.5) * 1.5)) < 1e-12);
});

t.test('a tensor the loss does not depend on gets zeros, and stopGradient stops', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [2]);
  const y = g.input('y', 'float32', [3]);
  const loss = g.sum(g.mul(x, g.stopGradient(x)));
  const [dx, dy] = gradients(g, loss, [x, y]);
  g.output('dx', dx);
  g.output('dy', dy);
  const { dx: x1, dy: y1 } = interpret(g.build(), { x: [3, 4], y: [1, 1, 1] });
  t.strictSame([...x1], [3, 4]);
  t.strictSame([...y1], [0, 0, 0]);
});

t.test('a masked NaN does not leak into value or gradient', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [2]);
  const mask = g.input('mask', 'bool', [2]);
  const loss = g.sum(g.where(mask, g.mul(x, x), 0));
  g.output('loss', loss);
  g.output('dx', gradients(g, loss, [x])[0]);
  const { loss: value } = interpret(g.build(), { x: [3, Number.NaN], mask: [1, 0] });
  t.equal(value[0], 9);
});

t.test('a loss that is not a float scalar is refused', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [2]);
  t.throws(() => gradients(g, x, [x]), /one float32 element, got float32\[2\]/);
});

t.test('stages computed again give the same gradients, after what they wait for', async t => {
  const build = (recompute: boolean) => {
    const g = new GraphBuilder();
    let x = g.input('x', 'float32', [2, 3]);
    const weights = [0, 1, 2].map(layer => g.parameter(`w${layer}`, [3, 3]));
    for (const weight of weights) x = g.stage(() => g.add(x, g.tanh(g.exp(g.matmul(x, weight)))));
    const loss = g.sum(g.mul(x, x));
    gradients(g, loss, weights, { recompute }).forEach((gradient, layer) => {
      g.output(`w${layer}.grad`, gradient);
    });
    return g.build();
  };
  const values = {
    x: Float64Array.of(0.1, -0.4, 0.3, 0.2, 0.5, -0.1),
    ...Object.fromEntries(
      [0, 1, 2].map(layer => [`w${layer}`, Float64Array.from({ length: 9 }, (_, i) => Math.sin(i + layer))]),
    ),
  };
  const [kept, again] = [build(false), build(true)];
  t.same(interpret(again, values), interpret(kept, values));
  const count = (graph: typeof kept, operation: string) =>
    graph.nodes.filter(node => node.operation === operation).length;
  t.equal(count(kept, 'tanh'), 3);
  t.equal(count(again, 'tanh'), 5, 'all but the first, before which there is no gradient to wait for');
  const g = new GraphBuilder();
  t.throws(() => g.stage(() => g.stage(() => 1)), /cannot begin inside another/);
});

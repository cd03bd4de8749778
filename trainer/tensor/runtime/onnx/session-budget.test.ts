import t from 'tap';
import { GraphBuilder } from '../../graph/graph.ts';
import { OnnxRuntime, SessionBudget } from './onnx-runtime.ts';

class Holder {
  busy = false;
  suspended = 0;

  async suspend(): Promise<void> {
    this.suspended++;
  }
}

t.test('the least recently used session is suspended first, unless busy', async t => {
  const budget = new SessionBudget(10);
  const [a, b, c] = [new Holder(), new Holder(), new Holder()];
  await budget.use(a, 4);
  await budget.use(b, 4);
  await budget.use(a, 4);
  await budget.use(c, 4);
  t.strictSame([a.suspended, b.suspended, c.suspended], [0, 1, 0]);
  a.busy = true;
  await budget.use(b, 4);
  t.strictSame([a.suspended, b.suspended, c.suspended], [0, 1, 1]);
});

t.test('leaving makes room, and a session over the budget is still kept', async t => {
  const budget = new SessionBudget(10);
  const [a, b] = [new Holder(), new Holder()];
  await budget.use(a, 8);
  budget.leave(a);
  await budget.use(b, 8);
  t.equal(a.suspended, 0);
  await budget.use(a, 99);
  t.strictSame([a.suspended, b.suspended], [0, 1]);
});

t.test('executables that gave their sessions up run as before', async t => {
  const runtime = new OnnxRuntime({ sessionsBytes: 1 });
  t.teardown(() => runtime.close());
  const compile = async (factor: number) => {
    const g = new GraphBuilder();
    g.output('y', g.mul(g.exp(g.input('x', 'float32', [2])), factor));
    return runtime.compile(g.build());
  };
  const two = await compile(2);
  const three = await compile(3);
  const x = Float32Array.of(0, 0);
  for (let turn = 0; turn < 2; turn++) {
    t.strictSame([...(await two.run({ x })).y], [2, 2]);
    t.strictSame([...(await three.run({ x })).y], [3, 3]);
  }
  const [a, b] = await Promise.all([two.run({ x }), three.run({ x })]);
  t.strictSame([a.y[0], b.y[0]], [2, 3]);
});

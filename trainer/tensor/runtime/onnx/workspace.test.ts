import t from 'tap';
import { GraphBuilder } from '../../graph/graph.ts';
import { OnnxRuntime } from './onnx-runtime.ts';
import { Workspace, workspaceOf } from './workspace.ts';

class Tenant {
  busy = false;
  suspended = 0;

  async suspend(): Promise<void> {
    this.suspended++;
  }
}

t.test('the least recently used workspace user is suspended first, unless busy', async t => {
  const workspace = new Workspace(10);
  const [a, b, c] = [new Tenant(), new Tenant(), new Tenant()];
  await workspace.use(a, 4);
  await workspace.use(b, 4);
  await workspace.use(a, 4);
  await workspace.use(c, 4);
  t.strictSame([a.suspended, b.suspended, c.suspended], [0, 1, 0]);
  a.busy = true;
  await workspace.use(b, 4);
  t.strictSame([a.suspended, b.suspended, c.suspended], [0, 1, 1]);
});

t.test('leaving frees memory, and a user over the budget is still served', async t => {
  const workspace = new Workspace(10);
  const [a, b] = [new Tenant(), new Tenant()];
  await workspace.use(a, 8);
  workspace.leave(a);
  await workspace.use(b, 8);
  t.equal(a.suspended, 0);
  await workspace.use(a, 99);
  t.strictSame([a.suspended, b.suspended], [0, 1]);
});

t.test('executables that gave their memory up run as before', async t => {
  const runtime = new OnnxRuntime({ workspaceBytes: 1 });
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

t.test('the estimate counts values, not views of them', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [10]);
  g.output('y', g.reshape(g.exp(x), [2, 5]));
  t.equal(workspaceOf(g.build()), 20);
});

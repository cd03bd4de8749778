import t from 'tap';
import { Random } from '../../../../shared/random.ts';
import { gradients } from '../../graph/gradients.ts';
import { type Graph, GraphBuilder } from '../../graph/graph.ts';
import { blockLayout } from '../../graph/operations/blocks.ts';
import { runContractSuite } from '../contract-suite.test-data.ts';
import { type ParameterInfo, ParameterStore } from '../parameter-store.ts';
import { lower } from './lowering.ts';
import { OnnxRuntime, SessionBudget } from './onnx-runtime.ts';

t.test('one thread', t => runContractSuite(t, () => new OnnxRuntime()));
t.test('two threads', t => runContractSuite(t, () => new OnnxRuntime({ threads: 2 })));

t.test('an id outside its table fails the run, and the executable stays usable', async t => {
  const runtime = new OnnxRuntime();
  t.teardown(() => runtime.close());
  const g = new GraphBuilder();
  g.output('y', g.gather(g.input('table', 'float32', [3]), g.input('ids', 'int32', [1])));
  const executable = await runtime.compile(g.build());
  const table = Float32Array.of(5, 6, 7);
  await t.rejects(executable.run({ table, ids: Int32Array.of(9) }), {
    name: 'RuntimeError',
    message: /the run failed in ONNX Runtime/,
  });
  t.equal((await executable.run({ table, ids: Int32Array.of(2) })).y[0], 7);
});

t.test('packed blocks give a row the same bits in any company, close to the exact product', async t => {
  const runtime = new OnnxRuntime();
  t.teardown(() => runtime.close());
  const [most, inputs, outputs] = [40, 192, 72];
  const rng = Random.fromSeed(8);
  const x = Float32Array.from({ length: most * inputs }, () => rng.normal());
  for (const bits of [4, 8] as const) {
    for (const block of [16, 32]) {
      for (const minimums of [false, true]) {
        const storage = { bits, block, minimums };
        const layout = blockLayout(storage, [outputs, inputs]);
        const parts: ParameterInfo[] = [
          { name: 'codes', shape: layout.codes, dtype: 'uint8' },
          { name: 'scales', shape: layout.scales },
          ...(minimums ? [{ name: 'minimums', shape: layout.scales }] : []),
        ];
        const parameters = new ParameterStore(parts);
        for (const { name, dtype } of parts) {
          const data = parameters.data(name);
          for (let i = 0; i < data.length; i++)
            data[i] = dtype ? rng.integer(256) : (rng.normal() * 0.1) / 2 ** bits;
        }
        const build = (rows: number) => {
          const g = new GraphBuilder();
          const weight = parts.map(({ name, shape, dtype }) => g.parameter(name, shape, dtype));
          const attributes = { ...storage, outputs, inputs, transposed: false };
          g.output(
            'y',
            g.apply('blockMatmul', [g.input('x', 'float32', [rows, inputs]), ...weight], attributes),
          );
          return g.build();
        };
        const exact = await (await runtime.compile(build(most), { parameters })).run({ x });
        const packed = await runtime.compile(build(most), { parameters, anyRows: true });
        const all = (await packed.run({ x })).y.slice();
        const error = Math.hypot(...all.map((value, i) => value - exact.y[i]));
        const size = Math.hypot(...exact.y);
        const what = `${bits} bits, blocks of ${block}${minimums ? ', minimums' : ''}`;
        t.ok(error > 0 && error < 0.01 * size, `${what}: error ${error} of ${size}`);
        for (let rows = 1; rows <= most; rows += rows < 9 ? 1 : 5) {
          const { y } = await packed.run({ x }, rows);
          t.same(y.slice(0, rows * outputs), all.slice(0, rows * outputs), `${what}: ${rows} rows`);
        }
        await t.rejects(packed.run({ x }, most + 1), /x|shape|length|size/i);
      }
    }
  }
  const g = new GraphBuilder();
  g.output('y', g.neg(g.input('x', 'float32', [2])));
  const fixed = await runtime.compile(g.build());
  await t.rejects(fixed.run({ x: new Float32Array(2) }, 1), /fixed number of rows/);
});

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

function opTypes(graph: Graph, threads = 1): string[] {
  return lower(graph, { threads }).graph.node.map(node => node.opType);
}

t.test(
  'attention that is only scored is one kernel; with gradients its weights are computed once',
  async t => {
    const build = (train: boolean): string[] => {
      const g = new GraphBuilder();
      const [q, k, v] = ['q', 'k', 'v'].map(name => g.input(name, 'float32', [2, 6, 2, 4]));
      const y = g.attention(q, k, v, { causal: true });
      g.output('y', y);
      const wrt = train ? [q, k, v] : [];
      for (const gradient of gradients(g, g.sum(g.mul(y, y)), wrt)) g.output(`${gradient.id}`, gradient);
      return opTypes(g.build());
    };
    t.strictSame(
      build(false).filter(type => type !== 'Reshape'),
      ['Attention'],
    );
    const trained = build(true);
    t.notOk(trained.includes('Attention'));
    t.equal(trained.filter(type => type === 'Softmax').length, 1);
  },
);

t.test('a long causal attention is cut into blocks that skip keys not seen', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [1, 224, 1, 16]);
  const y = g.attention(x, x, x, { causal: true });
  g.output('dx', gradients(g, g.sum(g.mul(y, y)), [x])[0]);
  t.equal(opTypes(g.build()).filter(type => type === 'Softmax').length, 4);
});

t.test('a norm with its weight is one kernel, and so is a product with its bias', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [2, 4]);
  const normed = g.rmsNorm(x, g.parameter('norm', [4]), 1e-6);
  const product = g.matmul(normed, g.parameter('w', [3, 4]), { transposeB: true });
  g.output('y', g.add(product, g.parameter('bias', [3])));
  t.strictSame(opTypes(g.build()), ['SimplifiedLayerNormalization', 'Gemm']);
});

t.test('a product or norm that goes out itself is not fused away', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [2, 4]);
  const normed = g.rmsNormalize(x, 1e-6);
  const product = g.matmul(normed, g.parameter('w', [3, 4]), { transposeB: true });
  g.output('normed', normed);
  g.output('scaled', g.mul(normed, g.parameter('norm', [4])));
  g.output('product', product);
  g.output('sum', g.add(product, g.parameter('bias', [3])));
  t.strictSame(opTypes(g.build()), ['SimplifiedLayerNormalization', 'Gemm', 'Mul', 'Add']);
});

t.test('the gradient of a large embedding table is scattered, never a one-hot product', async t => {
  const g = new GraphBuilder();
  const table = g.parameter('table', [150_000, 2]);
  const rows = g.gather(table, g.input('ids', 'int32', [4]));
  g.output('dtable', gradients(g, g.sum(g.mul(rows, rows)), [table])[0]);
  const graph = g.build();
  t.ok(opTypes(graph, 1).includes('ScatterND'));
  t.ok(opTypes(graph, 2).includes('ScatterElements'));
});

t.test('an output that is an input, or goes out twice, is copied', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [2]);
  const y = g.exp(x);
  g.output('x', x);
  g.output('y', y);
  g.output('z', y);
  t.strictSame(opTypes(g.build()), ['Exp', 'Identity', 'Identity']);
});

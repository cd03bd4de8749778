import t from 'tap';
import { gradients } from '../../graph/gradients.ts';
import { type Graph, GraphBuilder } from '../../graph/graph.ts';
import { lower } from './lowering.ts';

function opTypes(graph: Graph, threads = 1): string[] {
  return lower(graph, { threads }).nodes.map(node => node.opType);
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

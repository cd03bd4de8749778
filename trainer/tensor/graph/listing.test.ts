import t from 'tap';
import { GraphBuilder } from './graph.ts';
import { listGraph } from './listing.ts';

t.test('a listing has a line for each node and output, with names, settings and shapes', async t => {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [2, 3]);
  const weight = g.parameter('weight', [3, 4]);
  const long = g.constant(
    new Float32Array(20).map((_, i) => i),
    [20],
  );
  g.output('y', g.matmul(x, weight));
  g.output('z', g.mul(long, g.input('scale', 'float32', [])));
  const text = listGraph(g.build());
  t.match(text, /^%\d+ = input\(x\) : float32\[2,3\]$/m);
  t.match(text, /^%\d+ = parameter\(weight\) : float32\[3,4\]$/m);
  t.match(text, /^%\d+ = matmul\(%\d+, %\d+\).* : float32\[2,4\]$/m);
  t.match(text, /\(20 numbers\)/);
  t.match(text, /^output y = %\d+ : float32\[2,4\]$/m);
});

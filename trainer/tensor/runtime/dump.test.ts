import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { GraphBuilder } from '../graph/graph.ts';
import { dump, dumpFolder, dumpKinds, listGraph } from './dump.ts';
import { openRuntime } from './open-runtime.ts';

/** Sets the variables for one test. */
function asked(t: Test, kinds: string | undefined, folder?: string): void {
  for (const [name, value] of Object.entries({ RAGEN_DUMP: kinds, RAGEN_DUMP_DIR: folder })) {
    const before = process.env[name];
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
    t.teardown(() => {
      if (before === undefined) delete process.env[name];
      else process.env[name] = before;
    });
  }
}

t.test('graphs and ONNX models are written while they are compiled', async t => {
  const folder = t.testdir();
  asked(t, 'graph, onnx', join(folder, 'inside'));
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [3]);
  const runtime = await openRuntime('onnx', 1);
  t.teardown(() => runtime.close());
  g.output('doubled', g.mul(x, 2));
  const executable = await runtime.compile(g.build());
  t.same([...(await executable.run({ x: Float32Array.of(1, 2, 3) })).doubled], [2, 4, 6]);
  const files = readdirSync(join(folder, 'inside'));
  const read = (ending: string) =>
    readFileSync(join(folder, 'inside', files.find(file => file.endsWith(ending))!));
  t.match(read('-doubled.txt').toString(), /= mul\(/);
  t.match(read('-doubled.onnx').toString('latin1'), /Mul/);
  t.equal(files.length, 2);
});

t.test('RAGEN_DUMP writes only what it names', async t => {
  const folder = t.testdir();
  asked(t, 'batch', folder);
  dump('wgsl', 'product', () => {
    throw new Error('made');
  });
  t.same(readdirSync(folder), []);
  dump('batch', '../a name/with signs', () => '{}\n');
  t.match(readdirSync(folder), [/^batch-\d+-\d+-\d{4}-..-a-name-with-signs\.jsonl$/]);
});

t.test('without the variable nothing is dumped, and the folder is ragen-dump', async t => {
  asked(t, undefined);
  t.equal(dumpKinds().size, 0);
  t.equal(dumpFolder(), join(process.cwd(), 'ragen-dump'));
});

t.test('an unknown kind is refused with the nearest one', async t => {
  asked(t, 'graph,onx');
  t.throws(dumpKinds, {
    message: /RAGEN_DUMP: `onx` cannot be dumped, did you mean `onnx`\?; valid: graph, onnx, wgsl, batch/,
  });
});

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

import t, { type Test } from 'tap';
import { GraphBuilder } from '../../../graph/graph.ts';
import { interpret } from '../../../graph/interpreter.test-data.ts';
import { KernelCpuRuntime } from '../cpu-runtime.test-data.ts';
import { lowerToSteps } from '../lowering/lowering.ts';
import { WebGpuRuntime } from '../webgpu-runtime.ts';

const gpu = await WebGpuRuntime.open();
t.after(() => gpu?.close());
const skip = gpu === null ? 'no GPU here that Dawn can use' : false;

/** Few results of a long inner axis, which does not fall into equal parts. */
function longProducts(transposed: boolean) {
  const g = new GraphBuilder();
  for (const [name, rows, columns, inner] of [
    ['few', 3, 5, 1000],
    ['more', 50, 60, 1500],
  ] as const) {
    const a = g.input(`${name} a`, 'float32', transposed ? [inner, rows] : [rows, inner]);
    const b = g.input(`${name} b`, 'float32', transposed ? [columns, inner] : [inner, columns]);
    g.output(name, g.matmul(a, b, { transposeA: transposed, transposeB: transposed, scale: 0.5 }));
  }
  return g.build();
}

for (const transposed of [false, true]) {
  const graph = longProducts(transposed);
  const inputs = Object.fromEntries(
    [...graph.inputs].map(([name, { shape }], n) => [
      name,
      Float32Array.from({ length: shape[0] * shape[1] }, (_, i) => Math.sin(i + n)),
    ]),
  );
  const sides = transposed ? 'Aᵀ Bᵀ' : 'A B';

  t.test(`a long inner axis is summed in parts: ${sides}`, async t => {
    const { steps } = lowerToSteps(graph, { kind: 'float32' });
    t.ok(steps.filter(({ name }) => name.includes('parts')).length >= 4, 'each in equal parts and a rest');
    const given = await (await new KernelCpuRuntime().compile(graph)).run(inputs);
    compare(t, given);
  });

  t.test(`a long inner axis is summed in parts on the GPU: ${sides}`, { skip }, async t => {
    compare(t, await (await gpu!.compile(graph)).run(inputs));
  });

  function compare(t: Test, given: Readonly<Record<string, ArrayLike<number>>>): void {
    for (const [name, expected] of Object.entries(interpret(graph, inputs))) {
      const worst = Math.max(...Array.from(expected, (value, i) => Math.abs(value - given[name][i])));
      t.ok(worst < 1e-4, `${name} is off by ${worst}`);
    }
  }
}

import t from 'tap';
import { Random } from '../../../../shared/random.ts';
import { GraphBuilder } from '../../graph/graph.ts';
import { blockLayout } from '../../graph/operations/blocks.ts';
import { runContractSuite } from '../contract-suite.test-data.ts';
import { type ParameterInfo, ParameterStore } from '../parameter-store.ts';
import { OnnxRuntime } from './onnx-runtime.ts';

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

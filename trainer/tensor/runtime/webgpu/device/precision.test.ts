import t from 'tap';
import { create } from 'webgpu';
import { GraphBuilder } from '../../../graph/graph.ts';
import { interpret } from '../../../graph/interpreter.test-data.ts';
import { type MatrixProductForm, matrixProductCode, type SideForm } from '../shaders/matrix-product.ts';
import { WebGpuRuntime } from '../webgpu-runtime.ts';
import { type AdapterTraits, chooseProducts, describeProducts, SUBGROUP_MATRIX } from './device.ts';

const config = { componentType: 'f16', resultComponentType: 'f32', M: 16, N: 16, K: 16 };

function adapter(features: readonly string[], traits: Partial<AdapterTraits> = {}): AdapterTraits {
  return { features: new Set(features), subgroupMinSize: 32, subgroupMaxSize: 32, ...traits };
}

t.test('products take the best that an adapter offers', async t => {
  const all = adapter(['shader-f16', 'subgroups', SUBGROUP_MATRIX], { subgroupMatrixConfigs: [config] });
  t.strictSame(chooseProducts('float16', all), {
    kind: 'subgroup',
    rows: 16,
    columns: 16,
    inner: 16,
    threads: 32,
  });
  t.equal(describeProducts(chooseProducts('float16', all)), 'tensor cores, 16 × 16 × 16 of float16');
  t.equal(chooseProducts('float32', all).kind, 'float32');
  t.equal(chooseProducts('float16', adapter([])).kind, 'float32');
  const others: AdapterTraits[] = [
    adapter(['shader-f16']),
    { ...all, subgroupMinSize: 16 },
    { ...all, subgroupMatrixConfigs: [{ ...config, resultComponentType: 'f16' }] },
    { ...all, subgroupMatrixConfigs: [{ ...config, M: 64 }] },
  ];
  for (const other of others) t.equal(chooseProducts('float16', other).kind, 'float16');
});

const SIDES: readonly SideForm[] = [true, false].flatMap(innerFast =>
  [true, false].map(aligned => ({ innerFast, aligned })),
);
const FORMS: readonly MatrixProductForm[] = [64, 128].flatMap(extent =>
  SIDES.flatMap(left => SIDES.map(right => ({ extent, left, right }))),
);

t.test('the product on tensor cores compiles', async t => {
  const gpu = create(['backend=null', 'enable-dawn-features=allow_unsafe_apis']);
  const nothing = (await gpu.requestAdapter())!;
  const device = await nothing.requestDevice({
    requiredFeatures: ['shader-f16', 'subgroups', SUBGROUP_MATRIX] as GPUFeatureName[],
    requiredLimits: { maxComputeWorkgroupStorageSize: nothing.limits.maxComputeWorkgroupStorageSize },
  });
  t.teardown(() => device.destroy());
  for (const [rows, columns, inner] of [
    [16, 16, 16],
    [16, 8, 16],
    [8, 8, 8],
  ]) {
    for (const form of FORMS) {
      const code = matrixProductCode({ rows, columns, inner, threads: 32 }, form);
      const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
      t.strictSame(
        messages.map(({ type, message, lineNum }) => `${type}, line ${lineNum}: ${message}`),
        [],
        `${rows} × ${inner} × ${columns}, ${JSON.stringify(form)}`,
      );
    }
  }
});

const half = await WebGpuRuntime.open('float16');
t.after(() => half?.close());
const skip =
  half === null ? 'no GPU here that Dawn can use' : !half.products.includes('float16') && 'no float16 here';

t.test('factors of float16 give products that differ by their rounding only', { skip }, async t => {
  t.match(half!.description, /float16/);
  const g = new GraphBuilder();
  const [a, b] = [g.input('a', 'float32', [70, 130]), g.input('b', 'float32', [90, 130])];
  g.output('large', g.matmul(a, b, { transposeB: true }));
  g.output('small', g.matmul(g.slice(a, 0, 0, 3), b, { transposeB: true }));
  g.output('across', g.matmul(a, g.slice(b, 0, 0, 70), { transposeA: true }));
  const graph = g.build();
  const inputs = {
    a: Float32Array.from({ length: 70 * 130 }, (_, i) => Math.sin(i)),
    b: Float32Array.from({ length: 90 * 130 }, (_, i) => Math.cos(i * 0.7)),
  };
  const expected = interpret(graph, inputs);
  const given = await (await half!.compile(graph)).run(inputs);
  for (const [name, values] of Object.entries(expected)) {
    const differences = [...values].map((value, i) => Math.abs(value - given[name][i]));
    const worst = Math.max(...differences);
    // 2^-11 relative to each factor, of sums of 130 products at most 1.
    t.ok(worst < 130 * 2 ** -10 && worst < 0.02, `${name} differs by ${worst}`);
    t.ok(worst > 1e-6, `${name} was rounded`);
  }
});

t.test(
  'products of many tiles are right to their last rows and columns, however the sides lie',
  { skip },
  async t => {
    for (const [rows, inner, columns] of [
      [1500, 52, 1412],
      [1501, 37, 1413],
    ]) {
      for (const [transposeA, transposeB] of [
        [false, false],
        [false, true],
        [true, false],
        [true, true],
      ]) {
        const g = new GraphBuilder();
        const a = g.input('a', 'float32', transposeA ? [2, inner, rows] : [2, rows, inner]);
        const b = g.input('b', 'float32', transposeB ? [2, columns, inner] : [2, inner, columns]);
        g.output('y', g.matmul(a, b, { transposeA, transposeB }));
        const inputs = {
          a: Float32Array.from({ length: 2 * rows * inner }, (_, i) => Math.sin(i)),
          b: Float32Array.from({ length: 2 * columns * inner }, (_, i) => Math.cos(i * 0.7)),
        };
        const executable = await half!.compile(g.build());
        const { y } = await executable.run(inputs);
        let worst = 0;
        for (let matrix = 0; matrix < 2; matrix++) {
          for (let row = rows - 1; row >= 0; row -= 97) {
            for (let column = columns - 1; column >= 0; column -= 89) {
              let sum = 0;
              for (let k = 0; k < inner; k++) {
                const own = transposeA ? k * rows + row : row * inner + k;
                const other = transposeB ? column * inner + k : k * columns + column;
                sum += inputs.a[matrix * rows * inner + own] * inputs.b[matrix * columns * inner + other];
              }
              worst = Math.max(worst, Math.abs(sum - y[(matrix * rows + row) * columns + column]));
            }
          }
        }
        const sides = `${transposeA ? 'Aᵀ' : 'A'} ${transposeB ? 'Bᵀ' : 'B'}`;
        // Every product of two factors below 1 is off by at most two roundings of 2⁻¹².
        t.ok(worst <= inner * 2 ** -11, `${sides}, ${rows} × ${inner} × ${columns}: off by ${worst}`);
        await executable.dispose();
      }
    }
  },
);

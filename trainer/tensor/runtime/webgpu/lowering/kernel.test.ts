import t from 'tap';
import { GraphBuilder } from '../../../graph/graph.ts';
import { WebGpuRuntime } from '../webgpu-runtime.ts';

const runtime = await WebGpuRuntime.open();
t.after(() => runtime?.close());
const skip = runtime === null ? 'no GPU here that Dawn can use' : false;

t.test('axes may be longer than those of a dispatch', { skip }, async t => {
  // 8 threads a workgroup and 65,535 workgroups an axis reach to 524,280.
  for (const [rows, columns] of [
    [524_288, 3],
    [3, 524_288],
  ]) {
    const g = new GraphBuilder();
    g.output('y', g.mul(g.input('left', 'float32', [rows, 1]), g.input('right', 'float32', [1, columns])));
    const executable = await runtime!.compile(g.build());
    const left = Float32Array.from({ length: rows }, (_, i) => 1 + (i % 1000));
    const right = Float32Array.from({ length: columns }, (_, i) => 1 + (i % 1000));
    const { y } = await executable.run({ left, right });
    const wrong = y.findIndex((value, i) => value !== left[Math.floor(i / columns)] * right[i % columns]);
    t.equal(wrong, -1, `${rows} × ${columns}`);
    await executable.dispose();
  }
});

import t from 'tap';
import { GraphBuilder } from '../../graph/graph.ts';
import { runContractSuite } from '../contract-suite.test-data.ts';
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

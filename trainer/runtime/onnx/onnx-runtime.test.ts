import t from 'tap';
import { runContractSuite } from '../contract-suite.ts';
import { OnnxRuntime } from './onnx-runtime.ts';

t.test('one thread', t => runContractSuite(t, () => new OnnxRuntime()));
t.test('two threads', t => runContractSuite(t, () => new OnnxRuntime({ threads: 2 })));

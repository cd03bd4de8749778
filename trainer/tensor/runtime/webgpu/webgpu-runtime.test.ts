import t from 'tap';
import { runContractSuite } from '../contract-suite.test-data.ts';
import { WebGpuRuntime } from './webgpu-runtime.ts';

const runtime = await WebGpuRuntime.open();
t.test('WebGPU', { skip: runtime === null ? 'no GPU here that Dawn can use' : false }, t =>
  runContractSuite(t, () => runtime!, { repeats: 3 }),
);

import t from 'tap';
import { runContractSuite } from '../contract-suite.test-data.ts';
import { KernelCpuRuntime } from './cpu-runtime.test-data.ts';

t.test('gpu.js kernels in cpu mode', t => runContractSuite(t, () => new KernelCpuRuntime(), { repeats: 1 }));

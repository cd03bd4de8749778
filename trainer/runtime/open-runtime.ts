import type { RuntimeChoice, RuntimeKind } from './choice.ts';
import { OnnxRuntime } from './onnx/onnx-runtime.ts';
import { type Runtime, RuntimeError } from './runtime.ts';
import type { WebGpuRuntime } from './webgpu/webgpu-runtime.ts';

/** Hidden size up to which a processor is faster than starting a GPU's kernels. */
const PROCESSOR_HIDDEN_SIZE = 192;

/** @throws RuntimeError where `webgpu` finds no GPU */
export async function openRuntime(kind: RuntimeKind, threads: number): Promise<Runtime> {
  if (kind === 'onnx') return new OnnxRuntime({ threads });
  const runtime = await openWebGpu();
  if (runtime === null) {
    throw new RuntimeError(
      'there is no GPU here that WebGPU can use: install its Vulkan driver, or choose the runtime onnx or auto',
    );
  }
  return runtime;
}

/** The runtime for a model: `auto` takes a GPU in hardware where there is one, unless the model is small. */
export async function chooseRuntime(choice: RuntimeChoice, hiddenSize: number): Promise<RuntimeKind> {
  if (choice !== 'auto') return choice;
  if (hiddenSize <= PROCESSOR_HIDDEN_SIZE) return 'onnx';
  const runtime = await openWebGpu();
  const found = runtime !== null && !runtime.software;
  await runtime?.close();
  return found ? 'webgpu' : 'onnx';
}

/** Dawn and gpu.js are loaded where a GPU is asked for only. */
async function openWebGpu(): Promise<WebGpuRuntime | null> {
  const { WebGpuRuntime } = await import('./webgpu/webgpu-runtime.ts');
  return WebGpuRuntime.open();
}

import { InferenceSession, Tensor } from 'onnxruntime-node';
import { trainerLog } from '../../../shared/log.ts';
import { GraphBuilder } from '../graph/graph.ts';
import type { Graph } from '../graph/tensor.ts';
import { dump, listGraph } from './dump.ts';
import { lower } from './onnx/lowering.ts';
import { encodeModel, inputName } from './onnx/model-builder.ts';
import { OnnxRuntime } from './onnx/onnx-runtime.ts';
import type { CompileOptions, Precision, Runtime, RuntimeChoice, RuntimeKind } from './runtime.ts';
import { RuntimeError } from './runtime-error.ts';
import type { WebGpuRuntime } from './webgpu/webgpu-runtime.ts';

/** Just below the largest block that glibc's heap learns to keep, 32 MiB. */
const ELEMENTS = 8_000_000;

/**
 * Makes the heap keep blocks up to 32 MiB for reuse. glibc returns blocks larger than any it has seen freed to the
 * system, which clears their pages again in each run: a tenth of an update. Allocating and freeing one block (10 ms)
 * raises that limit. Other allocators are not affected.
 */
async function keepBlocks(): Promise<void> {
  const g = new GraphBuilder();
  const values = g.broadcastTo(g.input('value', 'float32', [1]), [ELEMENTS]);
  g.output('first', g.gather(values, g.input('index', 'int32', [1])));
  const session = await InferenceSession.create(encodeModel(lower(g.build(), { threads: 1 })), {
    enableCpuMemArena: false,
    graphOptimizationLevel: 'disabled',
  });
  await session.run({
    [inputName('value')]: new Tensor('float32', new Float32Array(1), [1]),
    [inputName('index')]: new Tensor('int32', new Int32Array(1), [1]),
  });
  await session.release();
}

/** Hidden size up to which a processor is faster than starting a GPU's kernels. */
const PROCESSOR_HIDDEN_SIZE = 192;

/**
 * @param precision of the factors of products; float16 takes a GPU that has it
 * @throws RuntimeError where `webgpu` finds no GPU, or one without float16 that was requested
 */
export async function openRuntime(
  kind: RuntimeKind,
  threads: number,
  precision: Precision = 'float32',
): Promise<Runtime> {
  if (kind === 'onnx') {
    refusePrecision(kind, precision);
    const runtime = observed(new OnnxRuntime({ threads }));
    await keepBlocks();
    return runtime;
  }
  const runtime = await openWebGpu(precision);
  if (runtime === null) {
    throw new RuntimeError(
      'there is no GPU here that WebGPU can use: install its Vulkan driver, or choose the runtime onnx or auto',
    );
  }
  if (runtime.precision === precision) return observed(runtime);
  const { description } = runtime;
  await runtime.close();
  throw new RuntimeError(
    `policy.precision ${precision} needs a GPU with shader-f16, which this one lacks (${description}): use policy.precision float32`,
  );
}

/** Logs each graph that is compiled, and dumps it where asked. */
function observed(runtime: Runtime): Runtime {
  const compile = runtime.compile.bind(runtime);
  return Object.assign(runtime, {
    async compile(graph: Graph, options?: CompileOptions) {
      const outputs = [...graph.outputs.keys()];
      dump('graph', outputs.join('-'), () => listGraph(graph));
      const start = performance.now();
      const executable = await compile(graph, options);
      const ms = Math.round(performance.now() - start);
      trainerLog().debug({ runtime: runtime.name, nodes: graph.nodes.length, outputs, ms }, 'graph compiled');
      return executable;
    },
  });
}

/** @throws RangeError where a runtime does not support the precision */
export function refusePrecision(kind: RuntimeKind, precision: Precision): void {
  if (kind === 'webgpu' || precision === 'float32') return;
  throw new RangeError(
    `policy.precision ${precision} needs policy.runtime webgpu, and this policy runs on ONNX Runtime, where processor kernels multiply in float32: use policy.precision float32`,
  );
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
async function openWebGpu(precision: Precision = 'float32'): Promise<WebGpuRuntime | null> {
  const { WebGpuRuntime } = await import('./webgpu/webgpu-runtime.ts');
  return WebGpuRuntime.open(precision);
}

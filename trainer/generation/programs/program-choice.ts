import type { DecoderConfig } from '../../models/config.ts';
import type { ParameterSource } from '../../tensor/runtime/parameter-store.ts';
import type { Runtime } from '../../tensor/runtime/runtime.ts';
import { MemoryPlan } from '../../tensor/runtime/wasm/memory-plan.ts';
import { KvCache } from '../cache/kv-cache.ts';
import type { CompiledGrammar } from '../grammar.ts';
import type { DecodeProgram } from './decode-program.ts';
import { DeviceProgram } from './device-program.ts';
import { kernelsCompute, planKernels } from './kernel-arguments.ts';
import { KernelProgram } from './kernel-program.ts';
import { SegmentProgram } from './segment-program.ts';

/**
 * `kernels`: our own WebAssembly; `segments`: programs of the runtime between the attentions; `device`: all on a device that
 * has its own memory.
 */
export type DecodeProgramKind = 'kernels' | 'segments' | 'device';

/** Hidden size up to which our own kernels are faster than starting a runtime's. */
const KERNELS_HIDDEN_SIZE = 192;

export interface ProgramChoiceOptions {
  readonly config: DecoderConfig;
  readonly valueHead: boolean;
  readonly runtime: Runtime;
  readonly parameters: ParameterSource;
  readonly maxSequenceLength: number;
  /** Sequences that keep their cache at once; others are computed again when they continue. */
  readonly maxOpenSequences: number;
  /** Grammars that requests may name. */
  readonly grammars?: ReadonlyMap<string, CompiledGrammar>;
  /** Kind of the model's program; by its size when absent. */
  readonly program?: DecodeProgramKind;
}

/**
 * The model as an engine runs it, with its cache.
 * @throws RangeError for `device` on a runtime without device memory, and `kernels` for a family that they do not compute
 */
export function createProgram(options: ProgramChoiceOptions, maxRows: number): DecodeProgram {
  const { config, valueHead, runtime } = options;
  const small = config.hiddenSize <= KERNELS_HIDDEN_SIZE;
  const onProcessor = small && kernelsCompute(config) ? 'kernels' : 'segments';
  const { program = runtime.memory === undefined ? onProcessor : 'device' } = options;
  if (program === 'device') {
    if (runtime.memory === undefined) {
      throw new RangeError(`the runtime ${runtime.name} has no device memory: choose kernels or segments`);
    }
    return new DeviceProgram(options, runtime.memory, maxRows);
  }
  if (program === 'segments') {
    const cache = new KvCache(config, { ...options, maxRows });
    return new SegmentProgram({ ...options, cache, maxRows });
  }
  if (!kernelsCompute(config)) {
    throw new RangeError(`the kernels do not compute models of type ${config.architecture}: choose segments`);
  }
  const plan = new MemoryPlan();
  const places = planKernels(config, valueHead, maxRows, plan);
  const cache = new KvCache(config, { ...options, maxRows, plan });
  return new KernelProgram({ ...options, places, cache });
}

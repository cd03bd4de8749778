import type { DecoderConfig } from '../../models/config.ts';
import type { ParameterSource } from '../../runtime/parameter-store.ts';
import type { Runtime } from '../../runtime/runtime.ts';
import { MemoryPlan } from '../../runtime/wasm/memory-plan.ts';
import { PagedCache } from './cache.ts';
import type { DecodeProgram } from './decode-program.ts';
import { placeKernels } from './kernel-places.ts';
import { KernelProgram } from './kernel-program.ts';
import { SegmentProgram } from './segment-program.ts';

/** `kernels`: our own WebAssembly; `segments`: programs of the runtime between the attentions. */
export type DecodeProgramKind = 'kernels' | 'segments';

/** Hidden size up to which our own kernels are faster than starting a runtime's. */
const KERNELS_HIDDEN_SIZE = 192;

export interface ProgramChoiceOptions {
  readonly config: DecoderConfig;
  readonly valueHead: boolean;
  readonly runtime: Runtime;
  readonly parameters: ParameterSource;
  readonly maxSequenceLength: number;
  /** Sequences that keep their cache at once; others are computed anew when they go on. */
  readonly maxOpenSequences: number;
  /** How the model is computed; by its size when absent. */
  readonly program?: DecodeProgramKind;
}

/** The model as an engine runs it, with its cache. */
export function createProgram(
  options: ProgramChoiceOptions,
  maxRows: number,
): { readonly cache: PagedCache; readonly program: DecodeProgram } {
  const { config, valueHead } = options;
  const { program = config.hiddenSize <= KERNELS_HIDDEN_SIZE ? 'kernels' : 'segments' } = options;
  if (program === 'segments') {
    const cache = new PagedCache(config, { ...options, maxRows });
    return { cache, program: new SegmentProgram({ ...options, cache, maxRows }) };
  }
  const plan = new MemoryPlan();
  const places = placeKernels(config, valueHead, maxRows, plan);
  const cache = new PagedCache(config, { ...options, maxRows, plan });
  return { cache, program: new KernelProgram({ ...options, places, cache }) };
}

import { totalmem } from 'node:os';
import { counted } from '../../shared/counted.ts';

const FLOAT_BYTES = 4;
const GIBIBYTE = 2 ** 30;

/** Numbers of weights of a policy. */
export interface WeightCounts {
  /** Learned weights. */
  readonly trained: number;
  /** Frozen weights next to adapters. */
  readonly frozen: number;
}

/** Bytes of memory available to this process: the machine's, or the limit of its container. */
export function machineMemory(): number {
  const allowed = process.constrainedMemory();
  return allowed > 0 ? Math.min(totalmem(), allowed) : totalmem();
}

/**
 * Rejects a policy that needs more memory for weights and learning than there is, before any cache or activation.
 * @param available bytes of memory
 * @throws RangeError with the sizes and what to change, when it cannot fit
 */
export function refuseWhatCannotFit(
  { trained, frozen }: WeightCounts,
  workers: number,
  available: number,
): void {
  const parts = {
    weights: FLOAT_BYTES * (trained + frozen),
    'two moments': 2 * FLOAT_BYTES * trained,
    [`gradients of ${counted(workers, 'worker')}`]: 2 * workers * FLOAT_BYTES * trained,
  };
  refuseMore(parts, 'the machine', available, [
    ...(workers > 1 ? ['1 worker with several threads'] : []),
    ...(frozen === 0 ? [ADAPTERS] : []),
    'a smaller model',
  ]);
}

/**
 * Rejects a policy that needs more GPU memory than there is, before any activation. WebGPU does not report the size of
 * the memory.
 * @param cache bytes of keys and values of all sequences that may have some at once
 * @param available bytes of memory
 * @throws RangeError with the sizes and what to change, when it cannot fit
 */
export function refuseWhatNoGpuHolds(
  { trained, frozen }: WeightCounts,
  cache: number,
  available: number,
): void {
  const parts = {
    weights: FLOAT_BYTES * (trained + frozen),
    'two moments': 2 * FLOAT_BYTES * trained,
    gradients: FLOAT_BYTES * trained,
    'the cache of keys and values': cache,
  };
  refuseMore(parts, 'policy.gpu_memory_gib', available, [
    'a smaller rollout.concurrency or policy.context (the cache)',
    ...(frozen === 0 ? [ADAPTERS] : []),
    'a smaller model',
  ]);
}

/**
 * Rejects gradients that do not fit in memory together for a comparison.
 * @param available bytes of memory
 * @throws RangeError with the size and what to change, when they cannot fit
 */
export function refuseGradients(vectors: number, trained: number, available: number): void {
  const parts = { [`${vectors} gradients of ${trained} weights`]: FLOAT_BYTES * vectors * trained };
  refuseMore(parts, 'the machine', available, [
    'fewer diagnostics.gradients.snr_groups',
    'fewer diagnostics.gradients.buckets',
    ADAPTERS,
  ]);
}

const ADAPTERS = 'adapters (LoRA) instead of all weights';

function refuseMore(
  parts: Readonly<Record<string, number>>,
  where: string,
  available: number,
  advice: readonly string[],
): void {
  const total = Object.values(parts).reduce((sum, bytes) => sum + bytes, 0);
  if (total <= available) return;
  const shown = (bytes: number) => `${(bytes / GIBIBYTE).toFixed(1)} GiB`;
  const list = Object.entries(parts).map(([what, bytes]) => `${what} ${shown(bytes)}`);
  throw new RangeError(
    `the policy takes ${shown(total)} (${list.join(', ')}) and ${where} has ${shown(available)}: take ${advice.join(', or ')}`,
  );
}

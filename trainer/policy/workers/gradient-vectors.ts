import { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { WorkerTask } from './protocol.ts';

type Task<Kind extends WorkerTask['kind']> = Extract<WorkerTask, { kind: Kind }>;

/** Adds up the workers' gradients of a batch in their order, one component after the other. */
export function collectGradients({
  slice: { start, end },
  parts,
  vectors,
  first,
}: Omit<Task<'collectGradients'>, 'kind'>): void {
  const stores = parts.map(own => own.map(({ store }) => ParameterStore.fromShared(store).flat));
  stores[0].forEach(({ length }, component) => {
    const sum = vectorAt(vectors, first + component, length);
    sum.set(stores[0][component].subarray(start, end), start);
    for (const other of stores.slice(1)) {
      const part = other[component];
      for (let i = start; i < end; i++) sum[i] += part[i];
    }
  });
}

/**
 * Inner products over a slice, row-major; 0 between vectors of different kinds.
 * @param length elements of a vector
 */
export function gradientProducts(
  { slice: { start, end }, vectors, kinds }: Omit<Task<'gradientProducts'>, 'kind'>,
  length: number,
): Float64Array {
  const all = kinds.map((_, index) => vectorAt(vectors, index, length));
  const products = new Float64Array(kinds.length ** 2);
  for (let i = 0; i < kinds.length; i++) {
    for (let j = i; j < kinds.length; j++) {
      if (kinds[i] !== kinds[j]) continue;
      const [a, b] = [all[i], all[j]];
      let sum = 0;
      for (let k = start; k < end; k++) sum += a[k] * b[k];
      products[i * kinds.length + j] = sum;
      products[j * kinds.length + i] = sum;
    }
  }
  return products;
}

function vectorAt(vectors: SharedArrayBuffer, index: number, length: number): Float32Array {
  return new Float32Array(vectors, index * length * Float32Array.BYTES_PER_ELEMENT, length);
}

import { mean, unbiasedVariance } from '../statistics.ts';
import type { AdvantageSequence, AdvantageSettings } from './estimator.ts';

const VARIANCE_FLOOR = 1e-8;

/**
 * (x − mean) / √(var + 1e-8) with mean and unbiased variance over the masked-in entries of all arrays; every
 * entry is mapped, masked ones too (verl 0.6.1 `masked_whiten`). The arrays themselves where the settings turn it off.
 * @throws RangeError with fewer than two masked-in entries, which have no variance
 */
export function whiten(
  arrays: readonly Float64Array[],
  sequences: readonly Pick<AdvantageSequence, 'lossMask'>[],
  { whiten: wanted }: Pick<AdvantageSettings, 'whiten'>,
): readonly Float64Array[] {
  if (!wanted) return arrays;
  const valid: number[] = [];
  arrays.forEach((array, i) => {
    for (let t = 0; t < array.length; t++) if (sequences[i].lossMask[t]) valid.push(array[t]);
  });
  if (valid.length < 2) {
    throw new RangeError(
      `whitening advantages needs at least two sampled tokens in the batch, got ${valid.length}: use a larger batch or whiten: false`,
    );
  }
  const center = mean(valid);
  const scale = 1 / Math.sqrt(unbiasedVariance(valid) + VARIANCE_FLOOR);
  return arrays.map(array => array.map(x => (x - center) * scale));
}

/** {@link whiten}, then 0 on masked entries. */
export function whitenMasked(
  arrays: readonly Float64Array[],
  sequences: readonly Pick<AdvantageSequence, 'lossMask'>[],
  settings: Pick<AdvantageSettings, 'whiten'>,
): readonly Float64Array[] {
  return whiten(arrays, sequences, settings).map((array, i) =>
    array.map((x, t) => (sequences[i].lossMask[t] ? x : 0)),
  );
}

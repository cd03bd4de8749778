import type { Random } from '../../../shared/random.ts';
import { FILTER_FILLS, type FilterFill } from './settings.ts';

/** Plan that makes a filtered batch divide into mini-batches. */
export interface FillPlan {
  /** Positions of the kept sequences to train on, possibly repeated. */
  readonly indices: readonly number[];
  /** Weight of each of them in the loss: 1, or 0 for padding. */
  readonly weights: readonly number[];
  /** Sequences still to be collected before training. */
  readonly missing: number;
}

/**
 * Plans what to do after filtering left `count` sequences of the `wanted`:
 *
 * - `refill` collects the missing ones; a batch that is large enough is cut to size
 * - `copy` repeats random sequences up to the next multiple of `multiple`; no sequence is repeated twice before all are
 * - `delete` drops random sequences down to the last multiple; fewer than one multiple leaves nothing, and the update
 *   is skipped
 * - `pad` fills up to the next multiple with sequences of weight 0, which change neither loss nor averages
 *
 * Source: RAGEN V2 `adjust_batch`, `pad_batch.py`, `pending_batch.py`.
 * @throws RangeError for an unknown mode, listing the valid ones
 */
export function planFill(
  mode: FilterFill,
  sizes: { readonly count: number; readonly wanted: number; readonly multiple: number },
  random: Random,
): FillPlan {
  const { count, wanted, multiple } = sizes;
  const all = Array.from({ length: count }, (_, i) => i);
  const extra = count === 0 ? 0 : (multiple - (count % multiple)) % multiple;
  switch (mode) {
    case 'refill': {
      const indices = all.slice(0, wanted);
      return { indices, weights: indices.map(() => 1), missing: Math.max(0, wanted - count) };
    }
    case 'copy': {
      const copies: number[] = [];
      while (copies.length < extra) copies.push(...random.shuffle([...all]).slice(0, extra - copies.length));
      const indices = [...all, ...copies];
      return { indices, weights: indices.map(() => 1), missing: 0 };
    }
    case 'delete': {
      const kept = random.shuffle([...all]).slice(0, count - (count % multiple));
      const indices = kept.sort((a, b) => a - b);
      return { indices, weights: indices.map(() => 1), missing: 0 };
    }
    case 'pad': {
      const padding = Array.from({ length: extra }, (_, i) => i % count);
      return {
        indices: [...all, ...padding],
        weights: [...all.map(() => 1), ...padding.map(() => 0)],
        missing: 0,
      };
    }
    default:
      throw new RangeError(`no fill mode "${mode}"; choose one of ${FILTER_FILLS.join(', ')}`);
  }
}

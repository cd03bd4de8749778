import { FILTER_LOSS_SCALINGS, type FilterLossScaling } from './settings.ts';

/**
 * Factor on the advantages of a filtered batch, so that a step on few groups does not move as far as one on all of them:
 * none 1 · linear kept ratio · sqrt √(kept ratio). Regularizers and value loss stay as they are.
 *
 * Source: RAGEN V2 `filter_loss_scaling`.
 * @throws RangeError for an unknown mode, listing the valid ones
 */
export function lossScale(mode: FilterLossScaling, keptRatio: number): number {
  switch (mode) {
    case 'none':
      return 1;
    case 'linear':
      return keptRatio;
    case 'sqrt':
      return Math.sqrt(keptRatio);
    default:
      throw new RangeError(`no loss scaling "${mode}"; choose one of ${FILTER_LOSS_SCALINGS.join(', ')}`);
  }
}

import { Random } from '../../shared/random.ts';
import {
  FILTER_FILLS,
  FILTER_LOSS_SCALINGS,
  type FilterFill,
  type FilterLossScaling,
} from '../algorithms/filters/settings.ts';
import type { TrainingSequence } from '../algorithms/training-sequence.ts';
import { hasPreferenceLoss } from '../config/derived.ts';
import type { RunSettings } from '../config/settings.ts';
import {
  type ExperienceSettings,
  experienceSettings,
  type KeptEpisode,
  trainingSequences,
} from './experience.ts';
import type { Filtered } from './filtering.ts';
import { trainedReturn } from './reward-components.ts';
import type { LaterScores } from './scoring.ts';

export interface BatchParts extends LaterScores {
  /** Ids of the tokens that actions are made of, per tag. */
  readonly actionTokens: ReadonlyMap<string, ReadonlySet<number>>;
}

/** Kept episodes as sequences: advantages estimated, and scaled by the share of groups that were kept. */
export function keptSequences(
  filtered: Filtered,
  settings: RunSettings,
  parts: BatchParts,
): TrainingSequence[] {
  if (hasPreferenceLoss(settings)) return pairedSequences(filtered, settings, parts);
  const { filter } = settings.algorithm;
  const scale = lossScale(
    filter.loss_scaling,
    filtered.groups === 0 ? 0 : filtered.kept.length / filtered.groups,
  );
  return trainingSequences(filtered.kept.flat(), experienceSettings(settings, parts.actionTokens), parts).map(
    sequence => scaled(sequence, scale),
  );
}

/**
 * Pairs of kept episodes as sequences, chosen before rejected. Pairs with an episode of several sequences are left out.
 */
function pairedSequences({ kept }: Filtered, settings: RunSettings, parts: BatchParts): TrainingSequence[] {
  // Pairs have no advantages: an episode alone could not be whitened or compared.
  const experience: ExperienceSettings = {
    ...experienceSettings(settings, parts.actionTokens),
    advantage: 'reinforce_pp',
    whiten: false,
  };
  return preferencePairs(kept, settings).flatMap(({ chosen, rejected }) => {
    const [first, second] = [chosen, rejected].map(one => trainingSequences([one], experience, parts));
    return first.length === 1 && second.length === 1 ? [first[0], second[0]] : [];
  });
}

/** Two episodes from one start, one better than the other. */
interface PreferencePair {
  readonly chosen: KeptEpisode;
  readonly rejected: KeptEpisode;
}

/**
 * The best and the worst episode of each group by their returns, penalties included; the first among equals. Groups
 * with a gap of at most `algorithm.preference_gap` between the two have no pair.
 */
function preferencePairs(
  groups: readonly (readonly KeptEpisode[])[],
  { algorithm }: Pick<RunSettings, 'algorithm'>,
): PreferencePair[] {
  return groups.flatMap(group => {
    const returns = group.map(({ episode }) => trainedReturn(episode, algorithm.reward_components));
    const [best, worst] = [Math.max(...returns), Math.min(...returns)];
    if (!(best - worst > algorithm.preference_gap)) return [];
    return [{ chosen: group[returns.indexOf(best)], rejected: group[returns.indexOf(worst)] }];
  });
}

/**
 * Sequences that fill whole mini-batches, as `filter.fill` says.
 * @param seed of the choice of sequences that are repeated or left out
 */
export function fillBatch(
  sequences: readonly TrainingSequence[],
  { algorithm: { filter, mini_batch_size } }: RunSettings,
  seed: number,
): readonly TrainingSequence[] {
  if (filter.fill === 'none' || filter.fill === 'refill') return sequences;
  const plan = planFill(
    filter.fill,
    { count: sequences.length, wanted: sequences.length, multiple: mini_batch_size },
    Random.fromSeed(seed),
  );
  return plan.indices.map((index, i) => weighed(sequences[index], plan.weights[i]));
}

function scaled(sequence: TrainingSequence, factor: number): TrainingSequence {
  if (factor === 1) return sequence;
  return { ...sequence, advantages: sequence.advantages.map(advantage => factor * advantage) };
}

function weighed(sequence: TrainingSequence, factor: number): TrainingSequence {
  return factor === 1 ? sequence : { ...sequence, weight: factor * (sequence.weight ?? 1) };
}

/**
 * Factor on the advantages of a filtered batch, so that a step on few groups moves less than one on all of them: none 1
 * · linear kept ratio · sqrt √(kept ratio). Regularizers and value loss are unaffected. Source: RAGEN V2
 * `filter_loss_scaling`.
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

/** Plan that makes the size of a filtered batch a multiple of a mini-batch's. */
interface FillPlan {
  /** Positions of the kept sequences to train on, possibly repeated. */
  readonly indices: readonly number[];
  /** Weight of each in the loss: 1, or 0 for padding. */
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

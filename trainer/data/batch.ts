import { Random } from '../../shared/random.ts';
import { planFill } from '../algorithms/filters/fill.ts';
import { lossScale } from '../algorithms/filters/loss-scaling.ts';
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

/** Pairs of kept episodes as sequences, chosen before rejected. A pair with an episode that was cut into several is left out. */
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

/** Two episodes from one start, of which one is better. */
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
 * Sequences made to fill whole mini-batches where `filter.fill` says so.
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

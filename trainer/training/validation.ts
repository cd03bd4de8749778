import { createHash } from 'node:crypto';
import type { EndMeanings } from '../../shared/run-folder/run-files.ts';
import { wilsonInterval } from '../algorithms/statistics.ts';
import { levelSeeds, samplingDistribution, splitGroups } from '../config/derived.ts';
import type { RunSettings } from '../config/settings.ts';
import { batchMetrics, lengthMetrics, type Metrics, tagMetrics } from '../data/episode-metrics.ts';
import type { SamplingDistribution } from '../generation/generation.ts';
import { type Episode, episodeReturn } from '../rollout/episode.ts';
import { type GroupPlan, planGroups } from '../rollout/tag.ts';
import type { MetricTable } from '../tracking/tracker.ts';
import type { PlayedGroups, Rollouts } from './sources/episode-source.ts';

export interface ValidationPlan {
  readonly sampling: SamplingDistribution;
  readonly tags: readonly { readonly tag: string; readonly groups: number }[];
  /** Seed of the first level; every group has the next. */
  readonly seed: number;
  /** Attempts at each level; 1 by default. */
  readonly groupSize?: number;
  /** The first this many groups keep the states of their turns. */
  readonly recorded?: number;
}

/** The groups of a validation: always the same for the same plan. */
export function validationGroups(plan: ValidationPlan): GroupPlan[] {
  const { tags, groupSize = 1, seed, recorded } = plan;
  return planGroups({ tags, groupSize, firstSeed: seed, recorded });
}

/** Plays the validation episodes; the same levels and the same draws every time. */
export function playValidation(
  rollouts: Rollouts,
  plan: ValidationPlan,
  signal: AbortSignal,
): Promise<PlayedGroups> {
  const { sampling, seed } = plan;
  return rollouts.play(validationGroups(plan), { sampling, seed, signal });
}

/**
 * `val-env/<tag>/…` as in {@link tagMetrics} with Wilson's interval of the success, and over all tags
 * `val-env/success` and `val-env/return`; of a further set under `val-env/<set>/…`.
 */
export function validationMetrics(
  episodes: readonly Episode[],
  responseLength: number,
  { set, ends }: { readonly set?: string; readonly ends?: EndMeanings } = {},
): Metrics {
  const out: Metrics = {};
  const prefix = set === undefined ? 'val-env/' : `val-env/${set}/`;
  for (const [name, value] of Object.entries(tagMetrics(episodes, ends))) out[prefix + name] = value;
  for (const [tag, members] of Map.groupBy(episodes, episode => episode.tag)) {
    const successes = members.filter(({ success }) => success).length;
    const [low, high] = wilsonInterval(successes, members.length);
    out[`${prefix}${tag}/success_low`] = low;
    out[`${prefix}${tag}/success_high`] = high;
  }
  const overall = batchMetrics(episodes);
  out[`${prefix}success`] = overall.success;
  out[`${prefix}return`] = overall.return;
  for (const [name, value] of Object.entries(lengthMetrics(episodes, responseLength))) {
    out[prefix + name] = value;
  }
  return out;
}

/** `val/generations`: episodes as rows, each with its first observation and everything that the policy wrote. */
export function generationsTable(episodes: readonly Episode[]): MetricTable {
  return {
    columns: ['tag', 'seed', 'input', 'output', 'return', 'success'],
    rows: episodes.map(episode => [
      episode.tag,
      episode.seed,
      episode.turns[0]?.state ?? '',
      episode.turns.map(turn => turn.rawResponse).join('\n'),
      episodeReturn(episode),
      episode.success ? 1 : 0,
    ]),
  };
}

/** Names the level an episode started from: by the environment's level id, or else by the first observation. */
export function levelHash(
  episode: Pick<Episode, 'environmentId' | 'turns' | 'levelId' | 'finalState'>,
): string {
  if (episode.levelId !== undefined) return episode.levelId;
  const first = episode.turns[0]?.state ?? episode.finalState ?? '';
  return createHash('sha256').update(`${episode.environmentId}\n${first}`).digest('base64url').slice(0, 16);
}

export function validationPlan(settings: RunSettings): ValidationPlan {
  const { validation } = settings;
  return {
    tags: splitGroups(validation.tags ?? settings.train_tags, validation.episodes),
    seed: levelSeeds(settings).validation,
    sampling: samplingDistribution(validation),
  };
}

/** A further set of validation episodes. */
export interface ValidationSetPlan {
  readonly name: string;
  readonly plan: ValidationPlan;
}

/** The sets that are played after the main validation, in the order of the settings. */
export function validationSets(settings: RunSettings): ValidationSetPlan[] {
  const { validation } = settings;
  const main = validationPlan(settings);
  return Object.entries(validation.sets).map(([name, set]) => ({
    name,
    plan: {
      tags: splitGroups(
        set.tags ?? validation.tags ?? settings.train_tags,
        set.episodes ?? validation.episodes,
      ),
      seed: set.seed ?? main.seed,
      sampling: {
        ...main.sampling,
        temperature: set.temperature ?? main.sampling.temperature,
        topK: set.top_k ?? main.sampling.topK,
        topP: set.top_p ?? main.sampling.topP,
      },
    },
  }));
}

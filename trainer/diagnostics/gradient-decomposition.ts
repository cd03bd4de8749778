import type { LossSettings } from '../algorithms/losses/settings.ts';
import { unbiasedStd } from '../algorithms/statistics.ts';
import { lossSettings } from '../config/derived.ts';
import type { RunSettings } from '../config/settings.ts';
import { groupBy } from '../data/episode-metrics.ts';
import { experienceSettings, trainingSequences } from '../data/experience.ts';
import { allEpisodes } from '../data/filtering.ts';
import type { Metrics } from '../data/metrics.ts';
import type { LaterScores } from '../data/scoring.ts';
import { countOnes } from '../data/sequences/loss-mask.ts';
import type { TrainingSequence } from '../data/sequences/training-sequence.ts';
import type { Policy, UpdateMetrics } from '../policy/policy.ts';
import { type Episode, episodeReturn, samplesOf } from '../rollout/episode.ts';
import {
  componentMetrics,
  componentPass,
  GRADIENT_COMPONENTS,
  type GradientComponent,
  type GradientGroup,
  planBuckets,
} from './gradient-buckets.ts';

export interface DecompositionParts {
  readonly policy: Pick<Policy, 'measure'>;
  readonly settings: RunSettings;
  /** Ids of the tokens that actions are made of, per tag. */
  readonly actionTokens: ReadonlyMap<string, ReadonlySet<number>>;
  /** What the loss wants to know of the episodes' samples besides what came with them. */
  readonly later: LaterScores;
}

/**
 * Gradients of task, entropy and KL apart, over all groups before the filter: of each bucket of groups of like spread, and of
 * all. No step is taken. Each is the gradient of the loss as if its bucket were the whole mini-batch.
 */
export async function decomposeGradients(
  { policy, settings, actionTokens, later }: DecompositionParts,
  episodes: readonly Episode[],
): Promise<Metrics> {
  const { temperature } = settings.rollout;
  const loss = lossSettings(settings);
  const sequences = trainingSequences(
    allEpisodes(episodes, settings),
    experienceSettings(settings, actionTokens),
    later,
  );
  const metrics: Metrics = {};
  for (const bucket of planBuckets(gradientGroups(episodes))) {
    const members = bucket.sequences.map(index => sequences[index]);
    const tokens = members.reduce((sum, { lossMask }) => sum + countOnes(lossMask), 0);
    const sizes = { sequences: members.length, tokens };
    Object.assign(metrics, bucket.metrics);
    for (const component of GRADIENT_COMPONENTS) {
      const measured = await gradientOf(component, policy, members, loss, temperature);
      Object.assign(metrics, componentMetrics(bucket.name, component, measured, sizes));
    }
  }
  return metrics;
}

/** Norm of one component's gradient, and that part of the loss; 0 where nothing weighs or the part is turned off. */
async function gradientOf(
  component: GradientComponent,
  policy: Pick<Policy, 'measure'>,
  sequences: readonly TrainingSequence[],
  settings: LossSettings,
  temperature: number,
): Promise<{ readonly norm: number; readonly loss: number }> {
  const weighs = sequences.some(({ weight }) => weight !== 0);
  if (!weighs || COEFFICIENTS[component](settings) === 0) return { norm: 0, loss: 0 };
  const pass = componentPass(component, { sequences }, settings);
  const metrics = await policy.measure(pass.batch, { loss: pass.settings, temperature });
  return { norm: metrics['actor/grad_norm'], loss: LOSSES[component](metrics, settings) };
}

const COEFFICIENTS: { readonly [component in GradientComponent]: (settings: LossSettings) => number } = {
  task: () => 1,
  entropy: settings => settings.entropyCoefficient,
  kl: settings => settings.kl.coefficient,
};

const LOSSES: {
  readonly [component in GradientComponent]: (metrics: UpdateMetrics, settings: LossSettings) => number;
} = {
  task: metrics => metrics['actor/pg_loss'],
  entropy: (metrics, { entropyCoefficient }) => -entropyCoefficient * metrics['actor/entropy'],
  kl: (metrics, { kl }) => kl.coefficient * metrics['actor/kl_loss'],
};

/** Groups with the places of their sequences, which stand in the order of episodes and samples. */
function gradientGroups(episodes: readonly Episode[]): GradientGroup[] {
  const places = new Map<Episode, number[]>();
  let next = 0;
  for (const episode of episodes) {
    const trained = samplesOf(episode).filter(({ lossMask }) => countOnes(lossMask) > 0);
    places.set(
      episode,
      trained.map(() => next++),
    );
  }
  return [...groupBy(episodes, episode => episode.groupId)].map(([groupId, members]) => ({
    groupId,
    rewardStd: members.length > 1 ? unbiasedStd(members.map(episodeReturn)) : 0,
    sequences: members.flatMap(episode => places.get(episode)!),
  }));
}

import type { Policy } from '../policy/policy.ts';
import { type Episode, samplesOf } from '../rollout/episode.ts';
import { mixSeed } from '../rollout/seeds.ts';
import { planGroups } from '../rollout/tag.ts';
import { writeTrajectories } from '../tracking/trajectories.ts';
import { makeBatch } from './batch.ts';
import type { TrainerState } from './checkpoint.ts';
import { batchMetrics, lengthMetrics, type Metrics, tagMetrics } from './episode-metrics.ts';
import type { Rollouts } from './rollouts.ts';
import type { RunFolder } from './run-folder.ts';
import type { RunSettings } from './settings.ts';
import { groupsPerTag, lossSettings, optimizerSettings } from './settings-derived.ts';
import { countOnes, updatePolicy } from './update.ts';
import { levelHash } from './validation.ts';

/** Purposes that a run's seed is mixed with, so that no two draw alike. */
const PURPOSE = { rollout: 1, order: 2 };

export interface IterationParts {
  readonly settings: RunSettings;
  readonly run: RunFolder;
  readonly policy: Pick<Policy, 'update'>;
  readonly rollouts: Rollouts;
  readonly stop: AbortSignal;
  /** Ids of the tokens that actions are made of, per tag. */
  readonly actionTokens: ReadonlyMap<string, ReadonlySet<number>>;
  /** Seconds on a clock that only rises. */
  readonly clock: () => number;
}

export interface IterationResult {
  readonly state: TrainerState;
  /** Groups that were trained on. */
  readonly keptGroups: number;
  /** Mean in-group std of the returns before filtering. */
  readonly groupStd: number;
  readonly metrics: Metrics;
}

/**
 * One iteration: collects a batch of groups, turns it into training sequences and updates the policy.
 * Episodes that start from a validation level are left out of everything.
 * @throws the signal's reason when `stop` is aborted before the update has begun
 */
export async function runIteration(
  parts: IterationParts,
  state: TrainerState,
  validationLevels: ReadonlySet<string>,
): Promise<IterationResult> {
  const { settings, policy, clock } = parts;
  const { rollout, algorithm } = settings;
  const step = state.step + 1;
  const t0 = clock();
  const groups = planGroups({
    tags: groupsPerTag(settings),
    groupSize: rollout.group_size,
    firstSeed: state.nextSeed,
  });
  const played = await parts.rollouts.play(groups, {
    temperature: rollout.temperature,
    topK: rollout.top_k,
    topP: rollout.top_p,
    seed: mixSeed(settings.seed, PURPOSE.rollout, step),
    signal: parts.stop,
  });
  const t1 = clock();
  const episodes = played.episodes.filter(episode => !validationLevels.has(levelHash(episode)));
  const batch = makeBatch(episodes, settings, parts.actionTokens);
  const t2 = clock();
  const optimizer = optimizerSettings(settings, state.step);
  const update = await updatePolicy(policy, batch.sequences, {
    settings: {
      loss: lossSettings(settings),
      optimizer,
      temperature: rollout.temperature,
    },
    epochs: algorithm.ppo_epochs,
    miniBatch: algorithm.mini_batch_size,
    seed: mixSeed(settings.seed, PURPOSE.order, step),
  });
  const t3 = clock();
  if (settings.tracking.trajectories_every > 0 && step % settings.tracking.trajectories_every === 0) {
    writeTrajectories(parts.run.trajectories, 'train', step, episodes);
  }
  const sampled = sampledTokens(episodes);
  const turns = episodes.reduce((sum, episode) => sum + episode.turns.length, 0);
  const overall = batchMetrics(episodes);
  const { response_length, ...lengths } = lengthMetrics(episodes, rollout.response_length);
  const metrics: Metrics = {
    ...prefixed('train/', tagMetrics(episodes)),
    'train/success': overall.success,
    'train/return': overall.return,
    frac_reward_zero_std: overall.frac_reward_zero_std,
    'train/response_length': response_length,
    ...lengths,
    ...played.metrics,
    ...batch.metrics,
    ...update.metrics,
    'actor/lr': optimizer.learningRate,
    'rollout/validation_levels_left_out': played.episodes.length - episodes.length,
    'timing_s/gen': t1 - t0,
    'timing_s/adv': t2 - t1,
    'timing_s/update_actor': t3 - t2,
    'timing_s/step': clock() - t0,
    'perf/tokens_per_second': sampled / (t1 - t0),
    'perf/train_tokens_per_second': t3 > t2 ? update.trainedTokens / (t3 - t2) : 0,
    'perf/throughput': (sampled + update.trainedTokens) / (clock() - t0),
  };
  return {
    keptGroups: batch.keptGroups,
    groupStd: batch.groupStd,
    metrics,
    state: {
      ...state,
      step,
      updates: state.updates + update.steps,
      nextSeed: state.nextSeed + groups.length,
      episodes: state.episodes + episodes.length,
      turns: state.turns + turns,
      sampledTokens: state.sampledTokens + sampled,
      trainedTokens: state.trainedTokens + update.trainedTokens,
    },
  };
}

function sampledTokens(episodes: readonly Episode[]): number {
  let tokens = 0;
  for (const episode of episodes) {
    for (const sample of samplesOf(episode)) tokens += countOnes(sample.mask);
  }
  return tokens;
}

function prefixed(prefix: string, metrics: Metrics): Metrics {
  return Object.fromEntries(Object.entries(metrics).map(([name, value]) => [prefix + name, value]));
}

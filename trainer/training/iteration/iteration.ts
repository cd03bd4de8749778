import type { Advantages } from '../../algorithms/advantages/estimator.ts';
import { policyLoss } from '../../algorithms/losses/registry.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import { hasPreferenceLoss, lossSettings } from '../../config/derived.ts';
import { settingsAt } from '../../config/schedules.ts';
import type { RunSettings } from '../../config/settings.ts';
import { fillBatch, keptSequences } from '../../data/batch.ts';
import { type Filtered, keptEpisodes } from '../../data/filtering.ts';
import type { Metrics } from '../../data/metrics.ts';
import { type LaterScores, laterScores, type SampleScores } from '../../data/scoring.ts';
import { diagnose } from '../../diagnostics/diagnosing.ts';
import type { OptimizerSettings, Policy, TrainedPolicy } from '../../policy/policy.ts';
import { IntervalMeter } from '../../rollout/collection/interval-meter.ts';
import { type Episode, episodeReturn } from '../../rollout/episode.ts';
import { mixSeed, PURPOSE } from '../../rollout/seeds.ts';
import type { MetricTable } from '../../tracking/tracker.ts';
import type { TrajectoryWriter } from '../../tracking/trajectories.ts';
import type { TrainerState } from '../run-folder/checkpoint.ts';
import type { RunFolder } from '../run-folder/run-folder.ts';
import type { GenerationPort } from '../setup/open-generation.ts';
import type { ReferencePolicy } from '../setup/open-policy.ts';
import type { EpisodeSource } from '../sources/episode-source.ts';
import { optimizerSettings } from '../update/schedule.ts';
import { type UpdateResult, updatePolicy } from '../update/update.ts';
import { collect } from './collection.ts';
import { recordIteration, scoresForRecord } from './recording.ts';
import { collectionMetrics, sampledTokens, speedMetrics, timingMetrics } from './step-metrics.ts';

/**
 * `critic/rewards/{mean,min,max}` of the returns of trained episodes and `critic/advantages/{mean,min,max}` of trained tokens,
 * as verl names them; nothing for an empty batch.
 */
export function batchStatistics(
  episodes: readonly Episode[],
  sequences: readonly TrainingSequence[],
): Metrics {
  const advantages = sequences.flatMap(({ advantages, lossMask, weight }) =>
    weight === 0 ? [] : Array.from(advantages).filter((_, t) => lossMask[t] === 1),
  );
  return {
    ...spread('critic/rewards', episodes.map(episodeReturn)),
    ...spread('critic/advantages', advantages),
  };
}

function spread(name: string, values: readonly number[]): Metrics {
  if (values.length === 0) return {};
  let [sum, min, max] = [0, Infinity, -Infinity];
  for (const value of values) {
    sum += value;
    min = Math.min(min, value);
    max = Math.max(max, value);
  }
  return { [`${name}/mean`]: sum / values.length, [`${name}/min`]: min, [`${name}/max`]: max };
}

export interface IterationParts {
  readonly settings: RunSettings;
  readonly run: RunFolder;
  readonly policy: Pick<
    Policy,
    'update' | 'score' | 'scoreContinuations' | 'decomposeGradients' | 'estimate' | 'holdingGeneration'
  > &
    Pick<TrainedPolicy, 'pipelined'>;
  /** Whom a KL term compares with; needed where one is on. */
  readonly reference?: Pick<ReferencePolicy, 'score' | 'refresh'>;
  /** Weights that a token goes through. */
  readonly parameterCount: number;
  readonly source: EpisodeSource;
  /** Source of sampled tokens; absent: the policy. */
  readonly generation?: GenerationPort;
  /** Ids of the tokens that actions are made of, per tag. */
  readonly actionTokens: ReadonlyMap<string, ReadonlySet<number>>;
  /** Text of tokens, as the policy's tokenizer writes it. */
  readonly decode: (ids: ArrayLike<number>) => string;
  /** Measures when the policy has something to do; absent where nobody asks. */
  readonly busy?: IntervalMeter;
  readonly trajectories: TrajectoryWriter;
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
  readonly tables: { readonly [name: string]: MetricTable };
  /** Warnings about the policy's health, for people. */
  readonly alarms: readonly string[];
}

/**
 * One iteration: collects a batch of groups, turns it into training sequences and updates the policy.
 * Episodes that start from a validation level are left out of everything.
 * @throws the signal's reason when the run is asked to stop before the update has begun
 */
export async function runIteration(
  run: IterationParts,
  state: TrainerState,
  validationLevels: ReadonlySet<string>,
): Promise<IterationResult> {
  const scheduled = settingsAt(run.settings, state.step + 1);
  const { settings } = scheduled;
  const busy = run.busy ?? new IntervalMeter();
  const parts = { ...run, settings, busy };
  const { source, clock, generation } = parts;
  busy.takeShare();
  const step = state.step + 1;
  const started = clock();
  const collection = await collect(parts, step, validationLevels);
  const collected = clock();
  const { episodes, filtered } = collection;
  const gap = await generation?.check(step, episodes);
  let estimated: Pick<Advantages, 'baselines' | 'metrics'> = {};
  const kept = await busy.during(() =>
    trainingSequencesOf(parts, filtered, collection.scores, {
      baselines: state.baselines,
      onEstimate: found => {
        estimated = found;
      },
    }),
  );
  const sequences = fillBatch(kept, settings, mixSeed(settings.seed, PURPOSE.fill, step));
  const prepared = clock();
  const batch = { episodes, filtered, sequences: kept };
  const diagnosed = await busy.during(() => diagnose(parts, batch, step, state.collapse));
  const scores = await busy.during(() => scoresForRecord(parts, step, episodes, collection.scores));
  const learning = clock();
  const optimizer = optimizerSettings(settings, state.step);
  const update = await busy.during(() => learn(parts, state, sequences, optimizer));
  await generation?.publish();
  source.trained();
  const learned = clock();
  recordIteration(parts, { step, episodes, filtered, sequences, scores });
  const sampled = sampledTokens(episodes);
  const times = { started, collected, prepared, learning, learned, ended: clock() };
  const isSynchronous = settings.rollout.asynchronous === null;
  const idle = 1 - (collected - started) / (times.ended - started);
  const metrics: Metrics = {
    // What continues earlier episodes says nothing of the task itself.
    ...collectionMetrics(withoutPrefixed(episodes), settings),
    ...(isSynchronous ? { 'rollouter/idle_ratio': idle } : {}),
    ...collection.metrics,
    ...filtered.metrics,
    ...gap,
    ...generation?.takeMetrics(),
    ...update.metrics,
    ...(hasPreferenceLoss(settings) ? { 'train/pairs': sequences.length / 2 } : {}),
    ...estimated.metrics,
    ...batchStatistics(keptEpisodes(filtered), sequences),
    ...diagnosed.metrics,
    ...scheduled.metrics,
    'actor/lr': optimizer.learningRate,
    'rollout/validation_levels_left_out': collection.leftOut,
    ...timingMetrics(times),
    ...speedMetrics(parts, { episodes, sequences, sampled, trained: update.trainedTokens }, times),
  };
  return {
    keptGroups: filtered.kept.length,
    groupStd: filtered.groupStd,
    metrics,
    tables: diagnosed.tables,
    alarms: diagnosed.alarms,
    state: {
      ...state,
      ...source.position,
      ...(estimated.baselines ? { baselines: estimated.baselines } : {}),
      ...(diagnosed.memory ? { collapse: diagnosed.memory } : {}),
      step,
      updates: state.updates + update.steps,
      episodes: state.episodes + episodes.length,
      turns: state.turns + episodes.reduce((sum, episode) => sum + episode.turns.length, 0),
      sampledTokens: state.sampledTokens + sampled,
      envSteps: (state.envSteps ?? 0) + (collection.metrics['branch/env_steps'] ?? 0),
      usedTokens: (state.usedTokens ?? 0) + (collection.metrics['branch/sampled_tokens'] ?? 0),
      trainedTokens: state.trainedTokens + update.trainedTokens,
    },
  };
}

/** The episodes that begin at their start; all, where none does. */
function withoutPrefixed(episodes: readonly Episode[]): readonly Episode[] {
  const plain = episodes.filter(({ prefix }) => !prefix);
  return plain.length === 0 ? episodes : plain;
}

/** Updates the policy; sampling that goes on meanwhile waits. */
function learn(
  { policy, settings }: IterationParts,
  state: TrainerState,
  sequences: readonly TrainingSequence[],
  optimizer: OptimizerSettings,
): Promise<UpdateResult> {
  const { rollout, algorithm, seed } = settings;
  const { critic } = settings.policy;
  const update = () =>
    updatePolicy(policy, sequences, {
      settings: {
        loss: lossSettings(settings),
        optimizer,
        temperature: rollout.temperature,
        ...(critic ? { critic: optimizerSettings(settings, state.step, critic.learning_rate) } : {}),
      },
      epochs: algorithm.ppo_epochs,
      miniBatch: algorithm.mini_batch_size,
      seed: mixSeed(seed, PURPOSE.order, state.step + 1),
      ...(hasPreferenceLoss(settings) || policyLoss(settings.loss.policy).selects ? { scorer: policy } : {}),
      ...(hasPreferenceLoss(settings) ? { paired: true } : {}),
      ...(algorithm.target_kl === null ? {} : { targetKl: algorithm.target_kl }),
    });
  return rollout.asynchronous === null ? update() : policy.holdingGeneration(update);
}

/** The kept episodes as sequences, with what the loss wants to know of them under other weights. */
async function trainingSequencesOf(
  parts: IterationParts,
  filtered: Filtered,
  scores: SampleScores | undefined,
  running: Pick<LaterScores, 'baselines' | 'onEstimate'>,
): Promise<TrainingSequence[]> {
  const { settings, actionTokens } = parts;
  const later = await laterScores(parts, keptEpisodes(filtered), scores);
  return keptSequences(filtered, settings, { actionTokens, ...later, ...running });
}

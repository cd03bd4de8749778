import { hasPreferenceLoss, lossSettings } from '../config/derived.ts';
import { settingsAt } from '../config/schedules.ts';
import type { RunSettings } from '../config/settings.ts';
import { fillBatch, keptSequences } from '../data/batch.ts';
import { batchStatistics } from '../data/batch-statistics.ts';
import { batchMetrics, groupBy, lengthMetrics, programMetrics, tagMetrics } from '../data/episode-metrics.ts';
import { type Filtered, filterEpisodes, keptEpisodes, mergeFiltered } from '../data/filtering.ts';
import { averageRows, type Metrics } from '../data/metrics.ts';
import { isBootstrapped, laterScores, type SampleScores, scoreEpisodes } from '../data/scoring.ts';
import { countOnes } from '../data/sequences/loss-mask.ts';
import type { TrainingSequence } from '../data/sequences/training-sequence.ts';
import { diagnose } from '../diagnostics/diagnosing.ts';
import type { OptimizerSettings, Policy } from '../policy/policy.ts';
import { type Episode, samplesOf } from '../rollout/episode.ts';
import { IntervalMeter } from '../rollout/interval-meter.ts';
import { mixSeed, PURPOSE } from '../rollout/seeds.ts';
import type { MetricTable } from '../tracking/tracker.ts';
import type { TrajectoryWriter } from '../tracking/trajectories.ts';
import type { TrainerState } from './checkpoint.ts';
import type { GenerationPort } from './generation-port.ts';
import { recordIteration, scoresForRecord } from './recording.ts';
import type { RunFolder } from './run-folder.ts';
import { optimizerSettings } from './schedule.ts';
import type { ReferencePolicy } from './setup/open-policy.ts';
import type { EpisodeSource, PlayedGroups } from './sources/episode-source.ts';
import { type UpdateResult, updatePolicy } from './update.ts';
import { levelHash } from './validation.ts';

export interface IterationParts {
  readonly settings: RunSettings;
  readonly run: RunFolder;
  readonly policy: Pick<
    Policy,
    'update' | 'score' | 'scoreContinuations' | 'decomposeGradients' | 'estimate' | 'holdingGeneration'
  >;
  /** Whom a KL term compares with; needed where one is on. */
  readonly reference?: Pick<ReferencePolicy, 'score' | 'refresh'>;
  /** Weights that a token goes through. */
  readonly parameterCount: number;
  readonly source: EpisodeSource;
  /** Where tokens are sampled; absent: by the policy. */
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
  /** What a person should be told of the policy's health. */
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
  const kept = await busy.during(() => trainingSequencesOf(parts, filtered, collection.scores));
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
    ...collectionMetrics(episodes, settings),
    ...(isSynchronous ? { 'rollouter/idle_ratio': idle } : {}),
    ...collection.metrics,
    ...filtered.metrics,
    ...gap,
    ...generation?.takeMetrics(),
    ...update.metrics,
    ...(hasPreferenceLoss(settings) ? { 'train/pairs': sequences.length / 2 } : {}),
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
      ...(diagnosed.memory ? { collapse: diagnosed.memory } : {}),
      step,
      updates: state.updates + update.steps,
      episodes: state.episodes + episodes.length,
      turns: state.turns + episodes.reduce((sum, episode) => sum + episode.turns.length, 0),
      sampledTokens: state.sampledTokens + sampled,
      trainedTokens: state.trainedTokens + update.trainedTokens,
    },
  };
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
      ...(hasPreferenceLoss(settings) ? { pairScorer: policy } : {}),
      ...(algorithm.target_kl === null ? {} : { targetKl: algorithm.target_kl }),
    });
  return rollout.asynchronous === null ? update() : policy.holdingGeneration(update);
}

/** When the parts of a step ended, in seconds on the clock. */
interface StepTimes {
  readonly started: number;
  readonly collected: number;
  readonly prepared: number;
  /** When the update began. */
  readonly learning: number;
  readonly learned: number;
  readonly ended: number;
}

function timingMetrics({ started, collected, prepared, learning, learned, ended }: StepTimes): Metrics {
  return {
    'trainer/idle_ratio': (collected - started) / (ended - started),
    'timing_s/gen': collected - started,
    'timing_s/adv': prepared - collected,
    'timing_s/diagnostics': learning - prepared,
    'timing_s/update_actor': learned - learning,
    'timing_s/step': ended - started,
  };
}

/** What a step got through. */
interface StepWork {
  readonly episodes: readonly Episode[];
  readonly sequences: readonly TrainingSequence[];
  /** Tokens. */
  readonly sampled: number;
  readonly trained: number;
}

function speedMetrics(
  parts: IterationParts & { readonly busy: IntervalMeter },
  { episodes, sequences, sampled, trained }: StepWork,
  { started, collected, learning, learned, ended }: StepTimes,
): Metrics {
  const seconds = ended - started;
  const sampling = parts.settings.rollout.asynchronous === null ? collected - started : seconds;
  return {
    'perf/policy_busy_ratio': parts.busy.takeShare(),
    'perf/tokens_per_second': sampled / sampling,
    'perf/train_tokens_per_second': learned > learning ? trained / (learned - learning) : 0,
    ...utilization(parts, episodes, sequences, seconds),
    'perf/throughput': (sampled + trained) / seconds,
  };
}

/** Metrics of collections that add up over those of an iteration. */
const SUMMED = [
  'timing_s/rollout',
  'rollouter/steps',
  'rollouter/replayed_episodes',
  'rollouter/dropped_groups',
  'rollouter/lost_episodes',
  'rollouter/too_long_groups',
  'errored_rollouts',
];

interface IterationContext {
  /** All that were played and do not start from a validation level. */
  readonly episodes: readonly Episode[];
  readonly filtered: Filtered;
  /** Of all samples under the current weights, where they had to be made. */
  readonly scores: SampleScores | undefined;
  /** Episodes left out because they start from a validation level. */
  readonly leftOut: number;
}

interface CollectedIteration extends IterationContext {
  readonly metrics: Metrics;
}

/** Collects and filters; again and again for what is missing where the filter's `fill` is `refill`. */
async function collect(
  { settings, policy, source }: IterationParts,
  step: number,
  validationLevels: ReadonlySet<string>,
): Promise<CollectedIteration> {
  const { filter } = settings.algorithm;
  const { env_groups } = settings.rollout;
  const byEntropy = filter.score.startsWith('entropy');
  const rounds: (IterationContext & { readonly played: PlayedGroups })[] = [];
  let missing = env_groups;
  do {
    const played = rounds.length === 0 ? await source.collect(step) : await source.refill(step, missing);
    const episodes = played.episodes.filter(episode => !validationLevels.has(levelHash(episode)));
    const scores = byEntropy ? await scoreEpisodes(policy, episodes, settings) : undefined;
    const filtered = filterEpisodes(episodes, settings, scores);
    const leftOut = played.episodes.length - episodes.length;
    rounds.push({ played, episodes, filtered, scores, leftOut });
    missing -= filtered.kept.length;
  } while (filter.fill === 'refill' && missing > 0 && rounds.length <= filter.refill_rounds);
  const filtered = mergeFiltered(rounds.map(round => round.filtered));
  return {
    episodes: rounds.flatMap(round => round.episodes),
    filtered: filter.fill === 'refill' ? { ...filtered, kept: filtered.kept.slice(0, env_groups) } : filtered,
    scores: byEntropy ? new Map(rounds.flatMap(round => [...round.scores!])) : undefined,
    leftOut: rounds.reduce((sum, round) => sum + round.leftOut, 0),
    metrics: {
      ...mergePlayed(rounds.map(round => round.played)),
      ...(filter.fill === 'refill' ? { 'rollout/refill_rounds': rounds.length - 1 } : {}),
    },
  };
}

/** Seconds and counts of several collections added up, all else averaged. */
function mergePlayed(rounds: readonly PlayedGroups[]): Metrics {
  const merged = averageRows(rounds.map(round => round.metrics));
  for (const name of SUMMED) if (name in merged) merged[name] *= rounds.length;
  return merged;
}

/** The kept episodes as sequences, with what the loss wants to know of them under other weights. */
async function trainingSequencesOf(
  parts: IterationParts,
  filtered: Filtered,
  scores: SampleScores | undefined,
): Promise<TrainingSequence[]> {
  const { settings, actionTokens } = parts;
  const later = await laterScores(parts, keptEpisodes(filtered), scores);
  return keptSequences(filtered, settings, { actionTokens, ...later });
}

function collectionMetrics(episodes: readonly Episode[], settings: RunSettings): Metrics {
  const overall = batchMetrics(episodes);
  const { response_length, ...lengths } = lengthMetrics(episodes, settings.rollout.response_length);
  const members = groupBy(episodes, episode => episode.tag);
  return {
    ...Object.fromEntries([...members].map(([tag, some]) => [`train/${tag}/episodes`, some.length])),
    ...prefixed('train/', tagMetrics(episodes)),
    ...programMetrics(episodes),
    'train/success': overall.success,
    'train/return': overall.return,
    'train/truncated': share(episodes, ({ truncation }) => truncation !== undefined),
    'train/bootstrapped': share(episodes, episode => isBootstrapped(episode, settings)),
    frac_reward_zero_std: overall.frac_reward_zero_std,
    'train/response_length': response_length,
    ...lengths,
  };
}

/**
 * `perf/tflops`: 10¹² floating-point operations per second of a step, at 2 for each weight and token of the episodes and 6 for each
 * that is trained on, attention not counted; `perf/mfu`: the share of the machine's, where the settings have it.
 */
function utilization(
  { settings, parameterCount }: IterationParts,
  episodes: readonly Episode[],
  sequences: readonly TrainingSequence[],
  seconds: number,
): Metrics {
  let played = 0;
  for (const episode of episodes) for (const { tokenIds } of samplesOf(episode)) played += tokenIds.length;
  const trained = sequences.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
  const operations = parameterCount * (2 * played + 6 * settings.algorithm.ppo_epochs * trained);
  const tflops = operations / seconds / 1e12;
  const { peak_tflops } = settings.tracking;
  return { 'perf/tflops': tflops, ...(peak_tflops === null ? {} : { 'perf/mfu': tflops / peak_tflops }) };
}

function share(episodes: readonly Episode[], which: (episode: Episode) => boolean): number {
  return episodes.filter(which).length / Math.max(1, episodes.length);
}

function sampledTokens(episodes: readonly Episode[]): number {
  let tokens = 0;
  for (const episode of episodes) {
    for (const sample of samplesOf(episode)) tokens += countOnes(sample.lossMask);
  }
  return tokens;
}

function prefixed(prefix: string, metrics: Metrics): Metrics {
  return Object.fromEntries(Object.entries(metrics).map(([name, value]) => [prefix + name, value]));
}

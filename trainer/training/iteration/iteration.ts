import { Random } from '../../../shared/random.ts';
import type { EndMeanings, GroupRecord, GroupsRow } from '../../../shared/run-folder/run-files.ts';
import type { Advantages } from '../../algorithms/advantages/estimator.ts';
import { policyLoss } from '../../algorithms/losses/registry.ts';
import { mean } from '../../algorithms/statistics.ts';
import { countOnes, type TrainingSequence } from '../../algorithms/training-sequence.ts';
import { hasPreferenceLoss, lossSettings, recordsTrajectories } from '../../config/derived.ts';
import { settingsAt } from '../../config/schedules.ts';
import type { RunSettings } from '../../config/settings.ts';
import { averageRows, type Metrics } from '../../data/episode-metrics.ts';
import {
  type Filtered,
  filterEpisodes,
  keptEpisodes,
  keptSequences,
  mergeFiltered,
  type ScoredGroup,
} from '../../data/filtering.ts';
import { type LaterScores, laterScores, type SampleScores, scoreEpisodes } from '../../data/scoring.ts';
import { type DiagnosedBatch, diagnose } from '../../diagnostics/diagnosing.ts';
import type { OptimizerSettings, Policy } from '../../policy/policy.ts';
import { type Episode, episodeReturn, samplesOf, sumRewards } from '../../rollout/episode.ts';
import { mixSeed, PURPOSE } from '../../rollout/seeds.ts';
import { IntervalMeter } from '../../rollout/tally.ts';
import { appendJsonLine } from '../../tracking/jsonlines.ts';
import type { MetricTable } from '../../tracking/tracker.ts';
import type { TrajectoryWriter } from '../../tracking/trajectories.ts';
import type { TrainerState } from '../run-folder/checkpoint.ts';
import type { RunFolder } from '../run-folder/run-folder.ts';
import type { GenerationPort } from '../setup/open-generation.ts';
import type { ReferencePolicy } from '../setup/open-policy.ts';
import type { EpisodeSource, PlayedGroups } from '../sources/episode-source.ts';
import { fillBatch, optimizerSettings, type UpdateResult, updatePolicy } from '../update/update.ts';
import { levelHash } from '../validation.ts';
import { type ComparedPolicy, checkedGap } from './generation-gap.ts';
import {
  batchStatistics,
  collectionMetrics,
  sampledTokens,
  speedMetrics,
  timingMetrics,
} from './step-metrics.ts';

export interface IterationParts {
  readonly settings: RunSettings;
  readonly run: RunFolder;
  readonly policy: ComparedPolicy &
    Pick<
      Policy,
      'update' | 'scoreContinuations' | 'decomposeGradients' | 'estimate' | 'holdingGeneration' | 'pipelined'
    >;
  /** Policy that a KL term compares with; required if there is such a term. */
  readonly reference?: Pick<ReferencePolicy, 'score' | 'load'>;
  /** Ends of the environments' episodes. */
  readonly ends?: EndMeanings;
  /** Number of weights, for counting floating-point operations. */
  readonly parameterCount: number;
  readonly source: EpisodeSource;
  /** Source of sampled tokens; absent: the policy. */
  readonly generation?: GenerationPort;
  /** Ids of the tokens that actions are made of, per tag. */
  readonly actionTokens: ReadonlyMap<string, ReadonlySet<number>>;
  /** Text of tokens, as the policy's tokenizer writes it. */
  readonly decode: (ids: ArrayLike<number>) => string;
  /** Measures when the policy is busy; absent where that is not logged. */
  readonly busy?: IntervalMeter;
  readonly trajectories: TrajectoryWriter;
  /** Seconds on a monotonic clock. */
  readonly clock: () => number;
}

export interface IterationResult {
  readonly state: TrainerState;
  /** Groups that were trained on. */
  readonly keptGroups: number;
  /** Mean in-group std of the returns before filtering. */
  readonly groupStd: number;
  /** Sums of the environment's rewards, by episode. */
  readonly returns: readonly number[];
  readonly metrics: Metrics;
  readonly tables: { readonly [name: string]: MetricTable };
  /** Readable warnings about the policy's health. */
  readonly alarms: readonly string[];
}

/**
 * One iteration: collects a batch of groups, turns it into training sequences and updates the policy. Episodes that
 * start from a validation level are excluded everywhere.
 * @throws the signal's reason if the run is asked to stop before the update
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
  const gap =
    generation?.sampler &&
    (await checkedGap(run.settings, run.policy, step, episodes, {
      generator: generation.generator,
      published: generation.sampler.published,
    }));
  let estimated: Pick<Advantages, 'baselines' | 'metrics'> = {};
  const kept = await busy.during(() =>
    trainingSequencesOf(parts, filtered, collection.scores, {
      baselines: state.baselines,
      onEstimate: found => {
        estimated = found;
      },
    }),
  );
  const { filter, mini_batch_size } = settings.algorithm;
  const chance = Random.fromSeed(mixSeed(settings.seed, PURPOSE.fill, step));
  const sequences = fillBatch(kept, filter.fill, mini_batch_size, chance);
  const prepared = clock();
  const batch = { episodes, filtered, sequences: kept };
  const diagnosed = await busy.during(() => diagnose(parts, batch, step, state.collapse));
  const scores = await busy.during(() => scoresForRecord(parts, step, episodes, collection.scores));
  const learning = clock();
  const optimizer = optimizerSettings(settings, state.step);
  const update = await busy.during(() => learn(parts, state, sequences, optimizer));
  await generation?.sampler?.publish();
  source.trained();
  const learned = clock();
  recordIteration(parts, { step, episodes, filtered, sequences, scores });
  const sampled = sampledTokens(episodes);
  const times = { started, collected, prepared, learning, learned, ended: clock() };
  const isSynchronous = settings.rollout.asynchronous === null;
  const idle = 1 - (collected - started) / (times.ended - started);
  const metrics: Metrics = {
    // Episodes that continue earlier ones say nothing about the task itself.
    ...collectionMetrics(withoutPrefixed(episodes), settings, parts.ends),
    ...(isSynchronous ? { 'rollouter/idle_ratio': idle } : {}),
    ...collection.metrics,
    ...filtered.metrics,
    ...gap,
    ...generation?.sampler?.takeMetrics(),
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
    returns: episodes.map(({ turns }) => sumRewards(turns).reward),
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

/** The episodes that begin at their start; all of them if none does. */
function withoutPrefixed(episodes: readonly Episode[]): readonly Episode[] {
  const plain = episodes.filter(({ prefix }) => !prefix);
  return plain.length === 0 ? episodes : plain;
}

/** Updates the policy; concurrent sampling waits. */
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

/** The kept episodes as sequences, with their log-probabilities under other weights where the loss needs them. */
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

/** Most tokens that are scored only to record their entropies; further episodes are written without. */
const SCORED_TOKENS = 4096;

interface RecordingParts {
  readonly settings: RunSettings;
  readonly run: Pick<RunFolder, 'groups'>;
  readonly policy: Pick<Policy, 'score'>;
  readonly trajectories: TrajectoryWriter;
}

/** Episodes of an iteration and the training data made from them. */
interface IterationRecord extends DiagnosedBatch {
  readonly step: number;
  readonly scores: SampleScores | undefined;
}

/**
 * Scores for the record of an iteration: existing ones, else scores of as many episodes as have {@link SCORED_TOKENS}
 * tokens together. Undefined when the iteration is not recorded.
 */
async function scoresForRecord(
  { settings, policy }: RecordingParts,
  step: number,
  episodes: readonly Episode[],
  scores: SampleScores | undefined,
): Promise<SampleScores | undefined> {
  // A Tinker server returns no entropies.
  const hasNone = settings.policy.runtime === 'tinker';
  if (scores || hasNone || !recordsTrajectories(settings, step)) return scores;
  const chosen: Episode[] = [];
  let tokens = 0;
  for (const episode of episodes) {
    for (const { tokenIds } of samplesOf(episode)) tokens += tokenIds.length;
    if (tokens > SCORED_TOKENS) break;
    chosen.push(episode);
  }
  return scoreEpisodes(policy, chosen, settings);
}

/** Writes the groups of an iteration and, if they are due, its trajectories with the training values of each token. */
function recordIteration(parts: RecordingParts, record: IterationRecord): void {
  const { settings, run, trajectories } = parts;
  const { step, episodes, filtered, sequences, scores } = record;
  const kept = new Set(filtered.kept.flatMap(group => group.map(({ episode }) => episode)));
  const groups = filtered.scored.map(group => groupRecord(group, kept.has(group.episodes[0])));
  const { score, strategy } = settings.algorithm.filter;
  appendJsonLine(run.groups, { step, score, strategy, groups } satisfies GroupsRow);
  if (!recordsTrajectories(settings, step)) return;
  const groupOf = new Map(
    filtered.scored.flatMap(({ episodes }, i) => episodes.map(episode => [episode, groups[i]])),
  );
  // A training sequence has the same token ids array as its sample.
  const sequenceOf = new Map(sequences.map(sequence => [sequence.tokenIds, sequence]));
  trajectories.write('train', step, episodes, {
    group: episode => groupOf.get(episode),
    tokens(sample) {
      const sequence = sequenceOf.get(sample.tokenIds);
      return {
        entropies: countOnes(sample.lossMask) > 0 ? scores?.get(sample)?.entropies : undefined,
        advantages: sequence?.advantages,
        values: sequence?.values,
        returns: sequence?.returns,
        reference: sequence?.referenceLogProbs,
      };
    },
  });
}

function groupRecord({ episodes, score, std }: ScoredGroup, kept: boolean): GroupRecord {
  const [first] = episodes;
  return {
    group_id: first.groupId,
    tag: first.tag,
    seed: first.seed,
    size: episodes.length,
    successes: episodes.filter(({ success }) => success).length,
    mean: mean(episodes.map(episodeReturn)),
    std,
    score,
    kept,
  };
}

interface CollectionParts {
  readonly settings: RunSettings;
  readonly policy: Pick<Policy, 'score'>;
  readonly source: EpisodeSource;
}

/** Metrics of collections that are summed over an iteration. */
const SUMMED = [
  'timing_s/rollout',
  'rollouter/steps',
  'rollouter/replayed_episodes',
  'rollouter/dropped_groups',
  'rollouter/lost_episodes',
  'rollouter/too_long_groups',
  'rollouter/cut_observations',
  'errored_rollouts',
  'branch/env_steps',
  'branch/sampled_tokens',
  'branch/prefill_tokens',
  'branch/replayed_steps',
  'branch/recovery_steps',
  'branch/leaves',
  'branch/branches',
  'branch/lost_leaves',
];

/** Episodes and what was kept of them. */
interface IterationContext {
  /** All that were played and do not start from a validation level. */
  readonly episodes: readonly Episode[];
  readonly filtered: Filtered;
  /** Scores of all samples under the current weights, where something needs them. */
  readonly scores: SampleScores | undefined;
  /** Episodes left out because they start from a validation level. */
  readonly leftOut: number;
}

/** Collected episodes and metrics of one iteration. */
interface CollectedIteration extends IterationContext {
  readonly metrics: Metrics;
}

/** Collects and filters; with `fill: refill`, collects again until nothing is missing. */
async function collect(
  { settings, policy, source }: CollectionParts,
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

/** Sums seconds and counts of several collections, and averages the rest. */
function mergePlayed(rounds: readonly PlayedGroups[]): Metrics {
  const merged = averageRows(rounds.map(round => round.metrics));
  for (const name of SUMMED) if (name in merged) merged[name] *= rounds.length;
  return merged;
}

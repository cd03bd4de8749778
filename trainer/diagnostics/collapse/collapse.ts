import { Random } from '../../../shared/random.ts';
import type { Metrics } from '../../data/metrics.ts';
import type { Policy } from '../../policy/policy.ts';
import type { Episode } from '../../rollout/episode.ts';
import { type CollapseState, collapseMetrics } from './collapse-metrics.ts';
import {
  fittingSamples,
  type ReasoningSample,
  sampleFirstTurns,
  sampleTrajectories,
  thinkingMetrics,
} from './collapse-samples.ts';
import { type CrossTable, countScoredTokens, crossTable, planCrossScores } from './cross-scores.ts';
import { type ResponsePart, reasonedEpisode } from './reasoned-episode.ts';
import { type RegimeState, type RegimeThresholds, watchRegime } from './regime.ts';

/** State of a run's measurements; plain data, kept in checkpoints. */
export interface CollapseMemory {
  /** Moving averages by series; absent before its first measurement. */
  readonly series: { readonly [name: string]: CollapseState };
  /** State of the regime, for policies that think; absent before the first measurement. */
  readonly watch?: RegimeState;
  /** Seconds of all measurements of a kind. */
  readonly seconds?: { readonly firstTurn: number; readonly multiTurn: number };
}

export interface CollapseParts {
  readonly policy: Pick<Policy, 'scoreContinuations'>;
  readonly decode: (ids: ArrayLike<number>) => string;
  /** The measured part of a response: the thought, or the actions of policies that do not think. */
  readonly part: ResponsePart;
  /** Samples of a series at most. */
  readonly samples: number | 'all';
  /** Tokens that go through the model at most: fewer samples are taken where there would be more. */
  readonly maxTokens: number;
  /** Added to standard deviations before dividing by them. */
  readonly stdEps: number;
  readonly emaDecay: number;
  /** Null: half the median of the run's first three measurements. */
  readonly thresholds: RegimeThresholds | null;
  /** Seeds the choice of samples. */
  readonly seed: number;
  readonly temperature: number;
  /** Longest sequence the policy takes, in tokens. */
  readonly maxSequenceLength: number;
  /** Seconds on a clock that only rises. */
  readonly clock: () => number;
}

export interface CollapseResult {
  readonly metrics: Metrics;
  readonly memory: CollapseMemory;
  /** Warnings for people. */
  readonly alarms: readonly string[];
}

/** Fewest samples that can be compared. */
const LEAST_SAMPLES = 2;

/**
 * Scores reasonings of the episodes under each other's prompts: of first turns, and of turns anywhere. A series with
 * fewer than two prompts to compare has counts only. Prompts that leave no room for the longest reasoning are left out
 * (`<series>/too_long`).
 */
export async function measureCollapse(
  parts: CollapseParts,
  episodes: readonly Episode[],
  step: number,
  memory: CollapseMemory = { series: {} },
): Promise<CollapseResult> {
  const started = parts.clock();
  const reasoned = episodes.map(episode => reasonedEpisode(episode, parts.decode, parts.part));
  const random = Random.fromSeed(parts.seed);
  const count = parts.samples === 'all' ? Infinity : parts.samples;
  const drawn = [sampleFirstTurns(reasoned, count, random), sampleTrajectories(reasoned, count, random)].map(
    samples => ({
      fitting: fittingSamples(samples, parts.maxSequenceLength),
      drawn: samples.length,
    }),
  );
  const { tables, tokens } = withinTokens(
    drawn.map(({ fitting }) => fitting),
    parts.maxTokens,
  );
  const plan = planCrossScores(tables);
  const { temperature } = parts;
  const sums =
    plan.requests.length === 0 ? [] : await parts.policy.scoreContinuations(plan.requests, { temperature });
  const scores = plan.collect(sums);
  const names = SERIES[parts.part];
  const metrics: Metrics = parts.part === 'thought' ? thinkingMetrics(reasoned) : {};
  const series = { ...memory.series };
  names.forEach((name, i) => {
    const { rows, columns, mismatches } = tables[i];
    metrics[`${name}/too_long`] = drawn[i].drawn - drawn[i].fitting.length;
    metrics[`${name}/prompt_mismatch`] = mismatches;
    metrics[`${name}/rows`] = rows.length;
    metrics[`${name}/columns`] = columns.length;
    metrics[`${name}/scored_tokens`] = tokens[i];
    if (columns.length < LEAST_SAMPLES) return;
    const measured = collapseMetrics(scores[i], series[name], name, parts);
    Object.assign(metrics, measured.metrics);
    series[name] = measured.state;
  });
  const timing = timingMetrics(parts.clock() - started, tokens, memory.seconds);
  const watched = parts.part === 'thought' ? watchFirstTurns(metrics, step, memory, parts) : undefined;
  const watch = watched?.state ?? memory.watch;
  return {
    metrics: { ...metrics, ...timing.metrics, ...watched?.metrics },
    memory: { series, seconds: timing.seconds, ...(watch ? { watch } : {}) },
    alarms: watched?.alarms ?? [],
  };
}

/** Prefixes of the metrics: of first turns, and of turns anywhere. */
export const SERIES: { readonly [part in ResponsePart]: readonly [firstTurn: string, trajectory: string] } = {
  thought: ['collapse_first_turn_sample', 'collapse_trajectory_sample'],
  actions: ['collapse_action_first_turn_sample', 'collapse_action_trajectory_sample'],
};

/** As many samples of each series as the limit has room for; of a series that has fewer than two prompts, none. */
function withinTokens(
  series: readonly (readonly ReasoningSample[])[],
  maxTokens: number,
): { readonly tables: readonly CrossTable[]; readonly tokens: readonly number[] } {
  const planned = (count: number) => {
    const tables = series
      .map(samples => crossTable(samples.slice(0, count)))
      .map(table => (table.columns.length < LEAST_SAMPLES ? crossTable([]) : table));
    return { tables, tokens: countScoredTokens(tables) };
  };
  const fits = (count: number) => planned(count).tokens.reduce((sum, tokens) => sum + tokens, 0) <= maxTokens;
  const most = Math.max(...series.map(samples => samples.length));
  if (fits(most)) return planned(most);
  let [enough, tooMany] = [0, most];
  while (tooMany - enough > 1) {
    const middle = (enough + tooMany) >> 1;
    if (fits(middle)) enough = middle;
    else tooMany = middle;
  }
  return planned(enough);
}

/** The series are scored together: their seconds are shares of the whole, by tokens. */
function timingMetrics(
  seconds: number,
  tokens: readonly number[],
  before: CollapseMemory['seconds'] = { firstTurn: 0, multiTurn: 0 },
): { readonly metrics: Metrics; readonly seconds: NonNullable<CollapseMemory['seconds']> } {
  const all = tokens[0] + tokens[1];
  const share = all === 0 ? 0.5 : tokens[0] / all;
  const firstTurn = share * seconds;
  const multiTurn = seconds - firstTurn;
  const totals = { firstTurn: before.firstTurn + firstTurn, multiTurn: before.multiTurn + multiTurn };
  return {
    metrics: {
      'timing_s/collapse_first_turn_step': firstTurn,
      'timing_s/collapse_multi_turn_step': multiTurn,
      'timing_s/collapse_first_turn_total': totals.firstTurn,
      'timing_s/collapse_multi_turn_total': totals.multiTurn,
      'timing_s/collapse_total': totals.firstTurn + totals.multiTurn,
    },
    seconds: totals,
  };
}

/** The regime by what was measured of first turns, if it could be. */
function watchFirstTurns(
  metrics: Metrics,
  step: number,
  { watch }: CollapseMemory,
  { thresholds }: Pick<CollapseParts, 'thresholds'>,
): ReturnType<typeof watchRegime> | undefined {
  const [first, trajectory] = SERIES.thought;
  if (!(`${first}/mi_seq_share` in metrics)) return undefined;
  const measured = {
    step,
    entropy: metrics[`${first}/conditional_entropy_est`],
    miShare: metrics[`${first}/mi_seq_share`],
    laterMiShare: metrics[`${trajectory}/mi_seq_share`],
  };
  return watchRegime(watch, measured, thresholds);
}

import { Random } from '../../../shared/random.ts';
import { parseResponse } from '../../../shared/response.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { Metrics } from '../../data/episode-metrics.ts';
import type { ContinuationRequest, Policy } from '../../policy/policy.ts';
import { type Episode, samplesOf, type Turn } from '../../rollout/episode.ts';
import { mixSeed, PURPOSE } from '../../rollout/seeds.ts';
import {
  type CollapseState,
  type CrossScores,
  collapseMetrics,
  fittingSamples,
  type ReasonedEpisode,
  type ReasonedTurn,
  type ReasoningSample,
  type RegimeState,
  type RegimeThresholds,
  sampleFirstTurns,
  sampleTrajectories,
  thinkingMetrics,
  tokenKey,
  watchRegime,
} from './collapse-metrics.ts';

/** Samples as rows, their prompts as columns. */
interface CrossTable {
  readonly rows: readonly ReasoningSample[];
  /** A prompt for each group, in ascending order of groups; then those of members with another prompt. */
  readonly columns: readonly ArrayLike<number>[];
  /** Column of the prompt that each row was written under. */
  readonly matchedColumn: readonly number[];
  /** Rows with a prompt other than that of their group's first sample. */
  readonly mismatches: number;
}

/** Columns of samples: the first sample's prompt of each group, and a column for every other prompt in it. */
export function crossTable(samples: readonly ReasoningSample[]): CrossTable {
  const groups = [...new Set(samples.map(({ group }) => group))].sort((a, b) => a - b);
  const columns = groups.map(group => samples.find(sample => sample.group === group)!.prompt);
  const names = columns.map(prompt => tokenKey(prompt));
  const known = new Map(groups.map((group, column) => [`${group}:${names[column]}`, column]));
  let mismatches = 0;
  const matchedColumn = samples.map(({ group, prompt }) => {
    const name = `${group}:${tokenKey(prompt)}`;
    let column = known.get(name);
    if (column === undefined) {
      column = columns.push(prompt) - 1;
      known.set(name, column);
    }
    if (column >= groups.length) mismatches++;
    return column;
  });
  return { rows: samples, columns, matchedColumn, mismatches };
}

/** Teacher forcing of several tables: score `requests`, then pass the sums to `collect`. */
interface CrossPlan {
  readonly requests: readonly ContinuationRequest[];
  /** @param sums log p of every request's continuations, in nats */
  collect(sums: readonly ArrayLike<number>[]): CrossScores[];
}

/**
 * Every row's reasoning after every column's prompt. A prompt that several columns share goes through the model once,
 * and so does a reasoning that several rows share, after each prompt.
 */
export function planCrossScores(tables: readonly CrossTable[]): CrossPlan {
  const asked = new Map<string, { readonly prompt: ArrayLike<number>; readonly at: Map<string, number> }>();
  const distinct = new Map<string, ArrayLike<number>>();
  for (const { rows, columns } of tables) {
    const reasonings = byKey(rows.map(({ reasoning }) => reasoning));
    for (const [key, reasoning] of reasonings) distinct.set(key, reasoning);
    for (const [name, prompt] of byKey(columns)) {
      const entry = asked.get(name) ?? { prompt, at: new Map<string, number>() };
      asked.set(name, entry);
      for (const key of reasonings.keys()) if (!entry.at.has(key)) entry.at.set(key, entry.at.size);
    }
  }
  const requests = [...asked.values()].map(({ prompt, at }) => ({
    prompt: Int32Array.from(prompt),
    continuations: [...at.keys()].map(key => Int32Array.from(distinct.get(key)!)),
  }));
  const requestOf = new Map([...asked.keys()].map((name, request) => [name, request]));
  const collect = (sums: readonly ArrayLike<number>[]): CrossScores[] =>
    tables.map(({ rows, columns, matchedColumn }) => {
      const scored = columns.map(prompt => {
        const name = tokenKey(prompt);
        return { sums: sums[requestOf.get(name)!], at: asked.get(name)!.at };
      });
      const perSequence = rows.map(({ reasoning }) => {
        const key = tokenKey(reasoning);
        return scored.map(column => column.sums[column.at.get(key)!]);
      });
      const perToken = perSequence.map((row, i) => row.map(sum => sum / rows[i].reasoning.length));
      return { perSequence, perToken, matchedColumn, prompts: columns };
    });
  return { requests, collect };
}

/**
 * Tokens through the model for each table of a {@link planCrossScores}, without those that an earlier table has
 * computed.
 */
export function countScoredTokens(tables: readonly CrossTable[]): number[] {
  const prompts = tables.map(({ columns }) => byKey(columns));
  const reasonings = tables.map(({ rows }) => byKey(rows.map(({ reasoning }) => reasoning)));
  return tables.map((_, table) => {
    const costs = new Map<string, number>();
    const newTokens = (earlier: readonly number[]): number => {
      const name = earlier.join();
      let cost = costs.get(name);
      if (cost === undefined) {
        cost = 0;
        for (const [key, { length }] of reasonings[table]) {
          if (!earlier.some(other => reasonings[other].has(key))) cost += length;
        }
        costs.set(name, cost);
      }
      return cost;
    };
    let count = 0;
    for (const [name, prompt] of prompts[table]) {
      const earlier = tables
        .map((_, other) => other)
        .filter(other => other < table && prompts[other].has(name));
      count += (earlier.length === 0 ? prompt.length : 0) + newTokens(earlier);
    }
    return count;
  });
}

function byKey(sequences: readonly ArrayLike<number>[]): Map<string, ArrayLike<number>> {
  return new Map(sequences.map(ids => [tokenKey(ids), ids]));
}

/** The measured part of a response. */
type ResponsePart = 'thought' | 'actions';

const CLOSING_TAGS: { readonly [part in ResponsePart]: string } = {
  thought: '</think>',
  actions: '</answer>',
};
const NOTHING = new Int32Array(0);

/**
 * An episode's turns as prompt X, up to the opening tag with which responses are primed, and reasoning Z: the sampled tokens with
 * text that ends before the closing tag, without white space at either end. A turn without it, or with a response that is
 * not well formed, has none.
 * @param decode of the tokenizer that the episode was played with
 */
export function reasonedEpisode(
  episode: Episode,
  decode: (ids: ArrayLike<number>) => string,
  part: ResponsePart,
): ReasonedEpisode {
  const samples = samplesOf(episode);
  return {
    groupId: episode.groupId,
    turns: episode.turns.map(turn => reasonedTurn(turn, samples[turn.sample ?? 0].tokenIds, decode, part)),
  };
}

function reasonedTurn(
  { tokens: [start, end], rawResponse }: Turn,
  tokenIds: Int32Array,
  decode: (ids: ArrayLike<number>) => string,
  part: ResponsePart,
): ReasonedTurn {
  const prompt = tokenIds.subarray(0, start);
  const { thinking, actions } = parseResponse(rawResponse, { think: part === 'thought', maxActions: 1 });
  const present = part === 'thought' ? thinking !== '' : actions.length > 0;
  if (!present) return { prompt, reasoning: NOTHING };
  const response = tokenIds.subarray(start, end);
  const within = response.subarray(0, tokensBefore(CLOSING_TAGS[part], response, decode));
  return { prompt, reasoning: withoutSpace(within, decode) };
}

/** Number of tokens that end before the text begins, where tokens may be parts of it; 0 where the text is missing. */
function tokensBefore(text: string, ids: Int32Array, decode: (ids: ArrayLike<number>) => string): number {
  const limit = decode(ids).indexOf(text);
  let [fit, tooMany] = [0, ids.length + 1];
  while (tooMany - fit > 1) {
    const middle = (fit + tooMany) >> 1;
    if (decode(ids.subarray(0, middle)).length <= limit) fit = middle;
    else tooMany = middle;
  }
  return fit;
}

function withoutSpace(ids: Int32Array, decode: (ids: ArrayLike<number>) => string): Int32Array {
  const isSpace = (id: number) => decode([id]).trim() === '';
  const first = ids.findIndex(id => !isSpace(id));
  const last = ids.findLastIndex(id => !isSpace(id));
  return first === -1 ? NOTHING : ids.subarray(first, last + 1);
}

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
  readonly settings: RunSettings;
  readonly policy: Pick<Policy, 'scoreContinuations'>;
  /** Text of tokens, as the policy's tokenizer writes it. */
  readonly decode: (ids: ArrayLike<number>) => string;
  /** Seconds on a monotonic clock. */
  readonly clock: () => number;
}

export interface CollapseResult {
  readonly metrics: Metrics;
  readonly memory: CollapseMemory;
  /** Readable warnings. */
  readonly alarms: readonly string[];
}

/** Fewest samples that can be compared. */
const LEAST_SAMPLES = 2;

/**
 * Scores reasonings of episodes before the filter under each other's prompts: of first turns, and of turns anywhere. A
 * series with fewer than two prompts only has counts. Prompts that leave no room for the longest reasoning are left out
 * (`<series>/too_long`). Of policies that do not think, actions are measured.
 */
export async function measureCollapse(
  { settings, policy, decode, clock }: CollapseParts,
  episodes: readonly Episode[],
  step: number,
  memory: CollapseMemory = { series: {} },
): Promise<CollapseResult> {
  const started = clock();
  const { samples: most, max_tokens, thresholds, ...constants } = settings.diagnostics.collapse;
  const { think, temperature } = settings.rollout;
  const part = think ? 'thought' : 'actions';
  const reasoned = episodes.map(episode => reasonedEpisode(episode, decode, part));
  const random = Random.fromSeed(mixSeed(settings.seed, PURPOSE.diagnostics, step));
  const count = most === 'all' ? Infinity : most;
  const drawn = [sampleFirstTurns(reasoned, count, random), sampleTrajectories(reasoned, count, random)].map(
    samples => ({
      fitting: fittingSamples(samples, settings.policy.context),
      drawn: samples.length,
    }),
  );
  const { tables, tokens } = withinTokens(
    drawn.map(({ fitting }) => fitting),
    max_tokens,
  );
  const plan = planCrossScores(tables);
  const sums =
    plan.requests.length === 0 ? [] : await policy.scoreContinuations(plan.requests, { temperature });
  const scores = plan.collect(sums);
  const names = SERIES[part];
  const metrics: Metrics = think ? thinkingMetrics(reasoned) : {};
  const series = { ...memory.series };
  names.forEach((name, i) => {
    const { rows, columns, mismatches } = tables[i];
    metrics[`${name}/too_long`] = drawn[i].drawn - drawn[i].fitting.length;
    metrics[`${name}/prompt_mismatch`] = mismatches;
    metrics[`${name}/rows`] = rows.length;
    metrics[`${name}/columns`] = columns.length;
    metrics[`${name}/scored_tokens`] = tokens[i];
    if (columns.length < LEAST_SAMPLES) return;
    const measured = collapseMetrics(scores[i], series[name], name, constants);
    Object.assign(metrics, measured.metrics);
    series[name] = measured.state;
  });
  const timing = timingMetrics(clock() - started, tokens, memory.seconds);
  const watched = think ? watchFirstTurns(metrics, step, memory, thresholds) : undefined;
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

/** As many samples of each series as fit the limit; none of a series with fewer than two prompts. */
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

/** The series are scored together, and share the seconds by their tokens. */
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

/** The regime by the measurement of first turns, if there is one. */
function watchFirstTurns(
  metrics: Metrics,
  step: number,
  { watch }: CollapseMemory,
  thresholds: RegimeThresholds | null,
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

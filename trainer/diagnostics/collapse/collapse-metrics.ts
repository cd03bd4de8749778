import type { Random } from '../../../shared/random.ts';
import { mean, populationStd } from '../../algorithms/statistics.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { Metrics } from '../../data/episode-metrics.ts';

/** Every reasoning scored under every prompt. Rows are reasonings, columns are prompts. */
export interface CrossScores {
  /** log p(z_i | x_j) divided by the reasoning's tokens. */
  readonly perToken: readonly ArrayLike<number>[];
  /** log p(z_i | x_j) summed over the reasoning's tokens. */
  readonly perSequence: readonly ArrayLike<number>[];
  /** Column of the prompt that each reasoning was written under. */
  readonly matchedColumn: readonly number[];
  /** Tokens of each column's prompt; columns with equal tokens count as the same prompt. */
  readonly prompts: readonly ArrayLike<number>[];
}

/** Moving averages of one series of measurements; plain data, kept in checkpoints. */
export interface CollapseState {
  readonly marginalStd: number;
  readonly marginalStdSeq: number;
}

/** Constants of a measurement. */
type CollapseConstants = Pick<RunSettings['diagnostics']['collapse'], 'std_eps' | 'ema_decay'>;

/** Retrieval is also measured as a hit among the best 2, 4 and 8 prompts. */
const RETRIEVAL_RANKS = [2, 4, 8];

interface LogProbs {
  readonly matched: Float64Array;
  readonly marginal: Float64Array;
  /** Mean of a row over all prompts. */
  readonly average: Float64Array;
}

/**
 * How much the reasoning Z depends on the prompt X, estimated from teacher-forced cross scores ℓ_ij.
 *
 * matched_i = ℓ_i,own; marginal_i = logsumexp_j ℓ_ij − log N. mi_estimate = mean(matched − marginal) ≤ log N is low
 * when the same reasoning fits every prompt (template collapse); conditional_entropy_est = −mean matched is low when
 * the policy always says the same (entropy collapse). z-scores divide by std(marginal) + ε, of this measurement
 * or of its moving average. `_seq` takes sums over tokens instead of means.
 *
 * mi_seq_share = mi_seq_estimate / mean_i log(N / n_i), with n_i columns that have the prompt of row i, is at most 1, and does not
 * shrink with the length of the reasoning as mi_estimate does. It is near 1 as soon as a thought names its prompt once.
 * mi_club_estimate = mean(matched − mean_j ℓ_ij) is an upper bound that grows with each further token that depends on the prompt.
 *
 * Sources: RAGEN V2 `collapse_metrics.py`; mi_club: CLUB (Cheng et al., 2020), with the policy itself as the conditional
 * distribution; mi_seq_share is our addition.
 * @param previous the state of the last measurement of the same series; absent at the first
 * @param series prefix of the metrics, e.g. `collapse_first_turn_sample`
 * @throws RangeError with fewer than two prompts, for which nothing can be compared
 */
export function collapseMetrics(
  scores: CrossScores,
  previous: CollapseState | undefined,
  series: string,
  { std_eps, ema_decay }: CollapseConstants,
): { readonly metrics: Record<string, number>; readonly state: CollapseState } {
  const columns = scores.prompts.length;
  if (columns < 2)
    throw new RangeError(`collapse metrics compare prompts: ${columns} given, at least 2 needed`);
  const token = logProbs(scores.perToken, scores.matchedColumn);
  const sequence = logProbs(scores.perSequence, scores.matchedColumn);
  const equalPrompts = countEqualPrompts(scores);
  const std = populationStd(token.marginal);
  const stdSeq = populationStd(sequence.marginal);
  const state: CollapseState = {
    marginalStd: decay(ema_decay, previous?.marginalStd, std),
    marginalStdSeq: decay(ema_decay, previous?.marginalStdSeq, stdSeq),
  };
  const matched = mean(token.matched);
  const marginal = mean(token.marginal);
  const matchedSeq = mean(sequence.matched);
  const marginalSeq = mean(sequence.marginal);
  const values: Record<string, number> = {
    mi_estimate: matched - marginal,
    mi_seq_estimate: matchedSeq - marginalSeq,
    mi_upper_bound: Math.log(columns),
    mi_club_estimate: matched - mean(token.average),
    mi_club_seq_estimate: matchedSeq - mean(sequence.average),
    matched_log_prob_mean: matched,
    marginal_log_prob_mean: marginal,
    conditional_entropy_est: -matched,
    conditional_entropy_seq_est: -matchedSeq,
    reasoning_entropy_est: -marginal,
    reasoning_entropy_seq_est: -marginalSeq,
    marginal_std: std,
    marginal_std_seq: stdSeq,
    marginal_std_ema: state.marginalStd,
    marginal_std_ema_seq: state.marginalStdSeq,
    mi_zscore: (matched - marginal) / (std + std_eps),
    mi_zscore_seq: (matchedSeq - marginalSeq) / (stdSeq + std_eps),
    mi_zscore_ema: (matched - marginal) / (state.marginalStd + std_eps),
    mi_zscore_ema_seq: (matchedSeq - marginalSeq) / (state.marginalStdSeq + std_eps),
    ...retrieval(scores, equalPrompts),
  };
  const most = mean(equalPrompts.map(count => Math.log(columns / count)));
  if (most > 0) values.mi_seq_share = (matchedSeq - marginalSeq) / most;
  const metrics = Object.fromEntries(
    Object.entries(values).map(([name, value]) => [`${series}/${name}`, value]),
  );
  return { metrics, state };
}

function decay(share: number, previous: number | undefined, current: number): number {
  return previous === undefined ? current : share * previous + (1 - share) * current;
}

function logProbs(rows: readonly ArrayLike<number>[], matchedColumn: readonly number[]): LogProbs {
  return {
    matched: Float64Array.from(rows, (row, i) => row[matchedColumn[i]]),
    marginal: Float64Array.from(rows, row => logSumExp(row) - Math.log(row.length)),
    average: Float64Array.from(rows, row => mean(row)),
  };
}

function logSumExp(row: ArrayLike<number>): number {
  let largest = Number.NEGATIVE_INFINITY;
  for (let j = 0; j < row.length; j++) largest = Math.max(largest, row[j]);
  let sum = 0;
  for (let j = 0; j < row.length; j++) sum += Math.exp(row[j] - largest);
  return largest + Math.log(sum);
}

/** For each row, the number of columns that have its own prompt. */
function countEqualPrompts({ matchedColumn, prompts }: CrossScores): number[] {
  const names = prompts.map(tokenKey);
  const copies = new Map<string, number>();
  for (const name of names) copies.set(name, (copies.get(name) ?? 0) + 1);
  return matchedColumn.map(column => copies.get(names[column])!);
}

/** Equal for equal token ids. */
export function tokenKey(ids: ArrayLike<number>): string {
  return Array.from(ids).join();
}

/** Shares of samples with their own prompt (or an equal one) among the k that explain the reasoning best; ties go to the first. */
function retrieval(
  { perToken, matchedColumn, prompts }: CrossScores,
  equalPrompts: readonly number[],
): Record<string, number> {
  const names = prompts.map(tokenKey);
  const chance = mean(equalPrompts.map(count => count / prompts.length));
  const ranked = perToken.map(row => names.map((_, j) => j).sort((a, b) => row[b] - row[a] || a - b));
  const hits = (k: number) =>
    mean(
      ranked.map((order, i) =>
        order.slice(0, k).some(column => names[column] === names[matchedColumn[i]]) ? 1 : 0,
      ),
    );
  const result: Record<string, number> = {};
  const add = (suffix: string, k: number) => {
    const accuracy = hits(k);
    const level = Math.min(1, chance * Math.min(k, prompts.length));
    result[`retrieval_accuracy${suffix}`] = accuracy;
    result[`retrieval_chance_level${suffix}`] = level;
    result[`retrieval_above_chance${suffix}`] = accuracy - level;
  };
  add('', 1);
  for (const k of RETRIEVAL_RANKS) add(`@${k}`, k);
  return result;
}

/**
 * One thought (Z) and everything that stood before it, up to the opening think tag (X). Of policies that do not think, the
 * actions and what stood before them.
 */
export interface ReasonedTurn {
  readonly prompt: ArrayLike<number>;
  /** Empty where the turn has no valid one. */
  readonly reasoning: ArrayLike<number>;
}

/** An episode's turns as prompt and reasoning. */
export interface ReasonedEpisode {
  readonly groupId: number;
  readonly turns: readonly ReasonedTurn[];
}

/** A turn that was drawn. */
export interface ReasoningSample extends ReasonedTurn {
  /** Samples of one group should share their prompt, and then share a column: the group of first turns, else the draw. */
  readonly group: number;
}

/** Up to `count` first turns with reasoning, drawn without replacement, in random order. */
export function sampleFirstTurns(
  episodes: readonly ReasonedEpisode[],
  count: number,
  random: Random,
): ReasoningSample[] {
  const samples = episodes.flatMap(({ groupId, turns }) =>
    turns.length > 0 && isValid(turns[0]) ? [{ ...turns[0], group: groupId }] : [],
  );
  return random.shuffle(samples).slice(0, count);
}

/**
 * Up to `count` turns drawn with replacement, each by drawing an episode and then one of its valid turns: long episodes do not
 * count more.
 */
export function sampleTrajectories(
  episodes: readonly ReasonedEpisode[],
  count: number,
  random: Random,
): ReasoningSample[] {
  const valid = episodes.map(episode => episode.turns.filter(isValid)).filter(turns => turns.length > 0);
  const total = valid.reduce((sum, turns) => sum + turns.length, 0);
  return Array.from({ length: Math.min(count, total) }, (_, group) => ({
    ...random.choice(random.choice(valid)),
    group,
  }));
}

/** `collapse/valid_thinking_rate` and `collapse/first_turn_{num_total,num_valid,valid_rate}`. */
export function thinkingMetrics(episodes: readonly ReasonedEpisode[]): Record<string, number> {
  const turns = episodes.flatMap(episode => episode.turns);
  const firsts = episodes.flatMap(episode => episode.turns.slice(0, 1));
  const rate = (part: number, whole: number) => (whole === 0 ? 0 : part / whole);
  const validFirsts = firsts.filter(isValid).length;
  return {
    'collapse/valid_thinking_rate': rate(turns.filter(isValid).length, turns.length),
    'collapse/first_turn_num_total': firsts.length,
    'collapse/first_turn_num_valid': validFirsts,
    'collapse/first_turn_valid_rate': rate(validFirsts, firsts.length),
  };
}

/** The samples with a prompt that leaves room in the policy's context for the longest reasoning. */
export function fittingSamples(
  samples: readonly ReasoningSample[],
  maxSequenceLength: number,
): ReasoningSample[] {
  const longest = samples.reduce((most, { reasoning }) => Math.max(most, reasoning.length), 0);
  return samples.filter(({ prompt }) => prompt.length + longest <= maxSequenceLength);
}

function isValid({ reasoning }: ReasonedTurn): boolean {
  return reasoning.length > 0;
}

/** In the order of their numbers in `collapse/regime`. */
export const REGIMES = ['diverse', 'template_collapse', 'compressed', 'low_entropy_collapse'] as const;
type Regime = (typeof REGIMES)[number];

/** Limits between high and low, set per run, because both depend on the task and the tokenizer. */
export interface RegimeThresholds {
  /** H(Z|X) in nats per token. */
  readonly entropy: number;
  /** Mutual information per sequence as a share of its upper bound log N. */
  readonly mi_share: number;
}

/** One measurement of first turns. */
export interface RegimeMeasurement {
  readonly step: number;
  readonly entropy: number;
  readonly miShare: number;
  /** Mutual information of turns anywhere, as a share of its bound; undefined where it could not be measured. */
  readonly laterMiShare: number | undefined;
}

/** The side of a threshold that a quantity is on, and whether the last measurement was on the other. */
interface Side {
  readonly high: boolean;
  readonly doubted: boolean;
}

/** State between two measurements; plain data, kept in checkpoints. */
export interface RegimeState {
  /** Measurements until the thresholds are known. */
  readonly first: readonly { readonly entropy: number; readonly miShare: number }[];
  readonly thresholds?: RegimeThresholds;
  readonly entropy?: Side;
  readonly information?: Side;
  /** Information of later turns against the same threshold. */
  readonly later?: Side;
  /** Every regime so far with the step it was reported at. */
  readonly history: readonly { readonly step: number; readonly regime: Regime }[];
}

/** Measurements that thresholds are taken from. */
const CALIBRATION = 3;
/** Thresholds are this share of the median of the first measurements … */
const SHARE_OF_MEDIAN = 0.5;
/** … and information below this share of its bound is never high. */
const LEAST_MI_SHARE = 0.05;

const FRESH: RegimeState = { first: [], history: [] };

/**
 * Names the state of a policy's reasoning:
 *
 * | | high mutual information | low mutual information |
 * |---|---|---|
 * | high entropy | diverse | template collapse: varied words that ignore the prompt |
 * | low entropy | compressed: short and to the point | low-entropy collapse |
 *
 * Without given thresholds they are half the median of the run's first three measurements (information: at least 0.05), and
 * nothing is named before. A quantity changes sides after two measurements in a row on the other side.
 *
 * @returns the metrics `collapse/regime`, `collapse/{entropy,mi_share}_threshold` and `collapse/ignores_later_observations`, and
 *   warnings for people
 */
export function watchRegime(
  state: RegimeState = FRESH,
  measured: RegimeMeasurement,
  given: RegimeThresholds | null,
): { readonly state: RegimeState; readonly metrics: Metrics; readonly alarms: readonly string[] } {
  const { step, entropy, miShare, laterMiShare } = measured;
  const first = state.first.length < CALIBRATION ? [...state.first, { entropy, miShare }] : state.first;
  const thresholds = given ?? state.thresholds ?? calibrated(first);
  if (thresholds === undefined) return { state: { ...state, first }, metrics: {}, alarms: [] };
  const sides = {
    entropy: moved(state.entropy, entropy >= thresholds.entropy),
    information: moved(state.information, miShare >= thresholds.mi_share),
    later: laterMiShare === undefined ? state.later : moved(state.later, laterMiShare >= thresholds.mi_share),
  };
  const regime = nameOf(sides.entropy.high, sides.information.high);
  const changed = state.history.at(-1)?.regime !== regime;
  const ignores = sides.information.high && sides.later?.high === false;
  const ignored = state.information?.high === true && state.later?.high === false;
  return {
    state: {
      first,
      thresholds,
      ...sides,
      history: changed ? [...state.history, { step, regime }] : state.history,
    },
    metrics: {
      'collapse/regime': REGIMES.indexOf(regime),
      'collapse/entropy_threshold': thresholds.entropy,
      'collapse/mi_share_threshold': thresholds.mi_share,
      'collapse/ignores_later_observations': ignores ? 1 : 0,
    },
    alarms: [
      ...(changed && ALARMS[regime]
        ? [`step ${step}: ${ALARMS[regime]} (${shown(measured, thresholds)})`]
        : []),
      ...(ignores && !ignored
        ? [
            `step ${step}: the reasoning depends on the first observation and hardly on later ones (information ${percent(laterMiShare!)} of its bound over all turns, ${percent(miShare)} over first turns)`,
          ]
        : []),
    ],
  };
}

const ALARMS: { readonly [regime in Regime]?: string } = {
  template_collapse: 'template collapse: the reasoning varies but hardly depends on the prompt',
  low_entropy_collapse: 'low-entropy collapse: the reasoning is nearly always the same',
};

function calibrated(first: RegimeState['first']): RegimeThresholds | undefined {
  if (first.length < CALIBRATION) return undefined;
  const half = (values: readonly number[]) => SHARE_OF_MEDIAN * median(values);
  return {
    entropy: half(first.map(({ entropy }) => entropy)),
    mi_share: Math.max(LEAST_MI_SHARE, half(first.map(({ miShare }) => miShare))),
  };
}

function moved(side: Side | undefined, high: boolean): Side {
  if (side === undefined || side.high === high) return { high, doubted: false };
  return side.doubted ? { high, doubted: false } : { high: side.high, doubted: true };
}

function nameOf(entropyHigh: boolean, informationHigh: boolean): Regime {
  if (entropyHigh) return informationHigh ? 'diverse' : 'template_collapse';
  return informationHigh ? 'compressed' : 'low_entropy_collapse';
}

function shown({ entropy, miShare }: RegimeMeasurement, thresholds: RegimeThresholds): string {
  return (
    `entropy ${entropy.toFixed(3)} nats per token, low below ${thresholds.entropy.toFixed(3)}; ` +
    `information ${percent(miShare)} of its bound, low below ${percent(thresholds.mi_share)}`
  );
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

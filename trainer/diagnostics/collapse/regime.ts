import type { Metrics } from '../../data/metrics.ts';

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

import { Random } from '../../shared/random.ts';
import type { Metrics } from '../data/metrics.ts';
import type { Policy } from '../policy/policy.ts';
import type { Episode } from '../rollout/episode.ts';
import { type CollapseState, collapseMetrics } from './collapse-metrics.ts';
import {
  planCrossScores,
  type ReasoningPair,
  sampleFirstTurns,
  sampleTrajectories,
  thinkingMetrics,
} from './collapse-plan.ts';
import { reasonedEpisode } from './reasoned-episode.ts';
import { classifyRegime, type Regime } from './regime.ts';

const FIRST_TURN = 'collapse_first_turn_sample';
const TRAJECTORY = 'collapse_trajectory_sample';

/** What the measurements of a run remember; plain data, kept in checkpoints. */
export interface CollapseMemory {
  /** Moving averages by series; absent before its first measurement. */
  readonly series: { readonly [name: string]: CollapseState };
  /** What the reasoning of first turns was like when it was last measured. */
  readonly regime?: { readonly name: Regime; readonly step: number };
}

export interface CollapseParts {
  readonly policy: Pick<Policy, 'score'>;
  readonly decode: (ids: ArrayLike<number>) => string;
  /** Reasonings of a series at most. */
  readonly samples: number;
  /** Seeds the choice of them. */
  readonly seed: number;
  readonly temperature: number;
  /** Longest sequence the policy takes, in tokens. */
  readonly maxSequenceLength: number;
}

/**
 * Scores reasonings of the episodes under each other's prompts: of first turns, and of turns anywhere. A series with
 * fewer than two prompts to compare is left out. Prompts that leave no room for the longest reasoning are too, and counted
 * (`<series>/too_long`).
 */
export async function measureCollapse(
  parts: CollapseParts,
  episodes: readonly Episode[],
  step: number,
  memory: CollapseMemory = { series: {} },
): Promise<{ readonly metrics: Metrics; readonly memory: CollapseMemory }> {
  const reasoned = episodes.map(episode => reasonedEpisode(episode, parts.decode));
  const random = Random.fromSeed(parts.seed);
  const drawn = {
    [FIRST_TURN]: sampleFirstTurns(reasoned, parts.samples, random),
    [TRAJECTORY]: sampleTrajectories(reasoned, parts.samples, random),
  };
  const metrics: Metrics = thinkingMetrics(reasoned);
  const series = { ...memory.series };
  for (const [name, all] of Object.entries(drawn)) {
    const pairs = fitting(all, parts.maxSequenceLength);
    metrics[`${name}/too_long`] = all.length - pairs.length;
    const { requests, collect } = planCrossScores(pairs);
    if (new Set(pairs.map(pair => pair.column)).size < 2) continue;
    const scores = collect(await parts.policy.score(requests, { temperature: parts.temperature }));
    const measured = collapseMetrics(scores, series[name], name);
    Object.assign(metrics, measured.metrics);
    series[name] = measured.state;
  }
  const regime = regimeOf(metrics);
  return { metrics, memory: { series, regime: regime ? { name: regime, step } : memory.regime } };
}

function fitting(pairs: readonly ReasoningPair[], maxSequenceLength: number): ReasoningPair[] {
  const longest = Math.max(0, ...pairs.map(({ reasoning }) => reasoning.length));
  return pairs.filter(({ prompt }) => prompt.length + longest <= maxSequenceLength);
}

function regimeOf(metrics: Metrics): Regime | undefined {
  const of = (name: string) => metrics[`${FIRST_TURN}/${name}`];
  if (!(`${FIRST_TURN}/mi_estimate` in metrics)) return undefined;
  return classifyRegime(of('conditional_entropy_est'), of('mi_estimate'), of('mi_upper_bound'));
}

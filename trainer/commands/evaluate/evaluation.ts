import { mean, wilsonInterval } from '../../algorithms/statistics.ts';
import { episodeMetrics } from '../../data/episode-metrics.ts';
import type { Episode } from '../../rollout/episode.ts';
import { textTable } from '../../tracking/text-table.ts';

/** Results of one player on one tag; shares from 0 to 1. */
export interface EvaluationRow {
  /** `checkpoint`, a folder, or the name of a reference policy. */
  readonly policy: string;
  readonly tag: string;
  /** Sampling mode of the tokens, or `reference` for players without sampling. */
  readonly mode: string;
  readonly episodes: number;
  readonly success: number;
  /** Share of levels with a success in k attempts, for k = 1, 2, 4, … and all; only for several attempts. */
  readonly pass_at?: { readonly [k: string]: number };
  /** Wilson 95 % interval of the success; attempts at one level count as one observation. */
  readonly success_low: number;
  readonly success_high: number;
  readonly return: number;
  readonly num_actions: number;
  readonly num_turns: number;
  /** Tokens of a response; null for players without text. */
  readonly response_length: number | null;
  /** Share of turns without a format penalty. */
  readonly format_valid: number;
}

/** One row for each tag, in the order of the episodes. */
export function evaluationRows(policy: string, mode: string, episodes: readonly Episode[]): EvaluationRow[] {
  return [...Map.groupBy(episodes, episode => episode.tag)].map(([tag, members]) => {
    const rows = members.map(episodeMetrics);
    const average = (name: string) => mean(rows.map(row => row[name]));
    const levels = [...Map.groupBy(members, episode => episode.groupId).values()];
    const lengths = members.flatMap(({ turns }) => turns.map(({ tokens }) => tokens[1] - tokens[0]));
    const written = mode !== 'reference' && lengths.some(length => length > 0);
    return {
      policy,
      tag,
      mode,
      episodes: members.length,
      ...successShares(levels),
      return: average('episodic_return'),
      num_actions: average('num_actions'),
      num_turns: average('num_turns'),
      response_length: written ? mean(lengths) : null,
      format_valid: 1 - average('format_penalty'),
    };
  });
}

/** Success over the attempts at each level, as fields of a row. */
export function successShares(
  levels: readonly (readonly Pick<Episode, 'success'>[])[],
): Pick<EvaluationRow, 'success' | 'pass_at' | 'success_low' | 'success_high'> {
  const success = mean(levels.flat().map(one => Number(one.success)));
  const attempts = Math.min(...levels.map(level => level.length));
  const [low, high] = wilsonInterval(success * levels.length, levels.length);
  return {
    success,
    ...(attempts > 1 ? { pass_at: passAt(levels, attempts) } : {}),
    success_low: low,
    success_high: high,
  };
}

/** Unbiased pass@k over levels, for k = 1, 2, 4, … up to the number of attempts. */
function passAt(
  levels: readonly (readonly Pick<Episode, 'success'>[])[],
  attempts: number,
): { [k: string]: number } {
  const successes = levels.map(level => level.map(({ success }) => success));
  const ks = [1, 2, 4, 8, 16, 32, 64].filter(k => k < attempts);
  return Object.fromEntries([...ks, attempts].map(k => [k, meanPassAtK(successes, k)]));
}

/** Columns that identify a row: policy, tag and mode. */
const KEYS = 3;

/**
 * The rows as a plain-text table.
 * @param columns width of the terminal; unlimited when absent
 */
export function evaluationTable(rows: readonly EvaluationRow[], columns?: number): string {
  const percent = (share: number) => (100 * share).toFixed(1);
  const passed = rows.some(row => row.pass_at !== undefined);
  const head = [
    'policy',
    'tag',
    'mode',
    'success %',
    '95 % interval',
    ...(passed ? ['pass@k %'] : []),
    'return',
    'actions',
    'turns',
    'tokens',
    'format %',
    'episodes',
  ];
  const body = rows.map(row => [
    row.policy,
    row.tag,
    row.mode,
    percent(row.success),
    `${percent(row.success_low)} to ${percent(row.success_high)}`,
    ...(passed
      ? [
          Object.entries(row.pass_at ?? {})
            .map(([k, share]) => `${k}: ${percent(share)}`)
            .join(' '),
        ]
      : []),
    row.return.toFixed(3),
    row.num_actions.toFixed(1),
    row.num_turns.toFixed(1),
    row.response_length === null ? '' : row.response_length.toFixed(1),
    percent(row.format_valid),
    String(row.episodes),
  ]);
  return textTable(head, body, { columns, keys: KEYS, ruled: true });
}

/**
 * Probability that at least one of k attempts succeeds, estimated without bias from n ≥ k attempts of which c
 * succeeded: 1 − C(n − c, k) / C(n, k) (Chen et al., 2021). With k = n: whether any succeeded.
 * @throws RangeError unless 1 ≤ k ≤ n and 0 ≤ c ≤ n
 */
export function passAtK(attempts: number, successes: number, k: number): number {
  if (!(k >= 1 && k <= attempts)) throw new RangeError(`pass@${k} needs 1 ≤ k ≤ ${attempts} attempts`);
  if (!(successes >= 0 && successes <= attempts)) {
    throw new RangeError(`${successes} successes in ${attempts} attempts`);
  }
  let failure = 1;
  for (let i = 0; i < k; i++) failure *= Math.max(0, attempts - successes - i) / (attempts - i);
  return 1 - failure;
}

/** Mean of {@link passAtK} over groups of attempts at the same start. */
export function meanPassAtK(groups: readonly (readonly boolean[])[], k: number): number {
  let sum = 0;
  for (const group of groups) sum += passAtK(group.length, group.filter(Boolean).length, k);
  return sum / groups.length;
}

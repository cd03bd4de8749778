import { mean } from '../algorithms/statistics.ts';
import type { Episode } from '../rollout/episode.ts';
import { episodeMetrics, groupBy } from '../training/episode-metrics.ts';
import { successInterval } from '../training/validation.ts';

/** What one player reached on one tag; shares from 0 to 1. */
export interface EvaluationRow {
  /** `checkpoint`, a folder, or the name of a reference policy. */
  readonly policy: string;
  readonly tag: string;
  /** How tokens were drawn, or `reference` for players that draw none. */
  readonly mode: string;
  readonly episodes: number;
  readonly success: number;
  /** Wilson's 95 % interval of the success. */
  readonly success_low: number;
  readonly success_high: number;
  readonly return: number;
  readonly num_actions: number;
  readonly num_turns: number;
  /** Tokens of a response; null for players that write none. */
  readonly response_length: number | null;
  /** Share of turns without a format penalty. */
  readonly format_valid: number;
}

/** A row for each tag, in the order of the episodes. */
export function evaluationRows(policy: string, mode: string, episodes: readonly Episode[]): EvaluationRow[] {
  return [...groupBy(episodes, episode => episode.tag)].map(([tag, members]) => {
    const rows = members.map(episodeMetrics);
    const average = (name: string) => mean(rows.map(row => row[name]));
    const [low, high] = successInterval(members);
    const lengths = members.flatMap(({ turns }) => turns.map(({ tokens }) => tokens[1] - tokens[0]));
    return {
      policy,
      tag,
      mode,
      episodes: members.length,
      success: average('success'),
      success_low: low,
      success_high: high,
      return: average('episodic_return'),
      num_actions: average('num_actions'),
      num_turns: average('num_turns'),
      response_length: mode === 'reference' ? null : mean(lengths),
      format_valid: 1 - average('format_penalty'),
    };
  });
}

/** The rows as a table of plain text. */
export function evaluationTable(rows: readonly EvaluationRow[]): string {
  const percent = (share: number) => (100 * share).toFixed(1);
  const head = [
    'policy',
    'tag',
    'mode',
    'success %',
    '95 % interval',
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
    row.return.toFixed(3),
    row.num_actions.toFixed(1),
    row.num_turns.toFixed(1),
    row.response_length === null ? '' : row.response_length.toFixed(1),
    percent(row.format_valid),
    String(row.episodes),
  ]);
  const widths = head.map((title, i) => Math.max(title.length, ...body.map(cells => cells[i].length)));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, i) => cell.padEnd(widths[i]))
      .join('  ')
      .trimEnd();
  return [line(head), line(widths.map(width => '-'.repeat(width))), ...body.map(line)].join('\n');
}

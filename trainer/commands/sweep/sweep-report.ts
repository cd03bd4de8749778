import { pairedBootstrap } from '../../algorithms/paired-bootstrap.ts';
import { mean, unbiasedStd } from '../../algorithms/statistics.ts';
import { shownDuration, shownShare } from '../../tracking/progress.ts';
import type { RunSummary } from '../../training/run-folder/report.ts';
import type { SweepPlan, SweepRun } from './sweep-plan.ts';

/** A run of a sweep and how far it is. */
export interface SweepOutcome extends SweepRun {
  /** `dropped` by successive halving. */
  readonly status: 'waiting' | 'done' | 'failed' | 'dropped';
  readonly summary?: RunSummary;
}

/** Success of the variants, each over its seeds: a table in Markdown. */
export function sweepReport(plan: SweepPlan, outcomes: readonly SweepOutcome[]): string {
  const done = outcomes.filter(({ status }) => status === 'done').length;
  const failed = outcomes.filter(({ status }) => status === 'failed').length;
  const dropped = outcomes.filter(({ status }) => status === 'dropped').length;
  const variants = [...new Set(outcomes.map(({ variant }) => variant))];
  const rows = variants.flatMap(variant => variantRows(variant, outcomes));
  return [
    `# ${plan.name}`,
    '',
    `${done} of ${outcomes.length} runs done${failed > 0 ? `, ${failed} failed` : ''}${dropped > 0 ? `, ${dropped} dropped` : ''}.`,
    '',
    '| variant | tag | success before | success after | of each seed | time |',
    '|---|---|---|---|---|---|',
    ...rows,
    '',
    'Success on the validation levels at the last validation of each run: mean ± standard deviation over the seeds. A run that is not done has its iteration next to it.',
    '',
    ...pairedRows(plan, outcomes),
  ].join('\n');
}

/** Each variant against the baseline, over the seeds that both have done. */
function pairedRows({ baseline }: SweepPlan, outcomes: readonly SweepOutcome[]): string[] {
  const success = (variant: string, seed: number) =>
    outcomes.find(one => one.variant === variant && one.seed === seed && one.status === 'done')?.summary
      ?.after?.success;
  const seeds = [...new Set(outcomes.map(({ seed }) => seed))];
  const rows = [...new Set(outcomes.map(({ variant }) => variant))].flatMap(variant => {
    const pairs = seeds.flatMap(seed => {
      const [a, b] = [success(baseline, seed), success(variant, seed)];
      return variant !== baseline && a !== undefined && b !== undefined ? [[a, b] as const] : [];
    });
    if (pairs.length < 2) return [];
    const { difference, low, high, p } = pairedBootstrap(
      pairs.map(([a]) => a),
      pairs.map(([, b]) => b),
    );
    const points = (share: number) => (100 * share).toFixed(1);
    return [
      `| ${variant} | ${pairs.length} | ${points(difference)} | ${points(low)} to ${points(high)} | ${p.toFixed(3)} |`,
    ];
  });
  if (rows.length === 0) return [];
  return [
    `| against ${baseline} | seeds | points of success | 95 % interval | p |`,
    '|---|---|---|---|---|',
    ...rows,
    '',
    'Differences seed by seed: percentile bootstrap over the seeds, and the p-value of the sign-flip test, which with n seeds is at least 2^(1 − n).',
    '',
  ];
}

function variantRows(variant: string, outcomes: readonly SweepOutcome[]): string[] {
  const own = outcomes.filter(outcome => outcome.variant === variant);
  const summaries = own.flatMap(({ summary }) => (summary?.after ? [summary] : []));
  if (summaries.length === 0) return [`| ${variant} |  |  |  | ${seedCells(own, undefined)} |  |`];
  const seconds = mean(summaries.map(summary => summary.seconds));
  return Object.keys(summaries[0].after!.tags).map(tag => {
    const of = (when: 'before' | 'after') =>
      summaries.flatMap(summary => summary[when]?.tags[tag]?.success ?? []);
    return `| ${variant} | ${tag} | ${spread(of('before'))} | ${spread(of('after'))} | ${seedCells(own, tag)} | ${shownDuration(seconds)} |`;
  });
}

function seedCells(outcomes: readonly SweepOutcome[], tag: string | undefined): string {
  return outcomes
    .map(({ status, summary }) => {
      const success = tag === undefined ? undefined : summary?.after?.tags[tag]?.success;
      if (success === undefined) return status;
      const at = status === 'done' ? '' : ` (${status} at step ${summary!.step})`;
      return `${shownShare(success)}${at}`;
    })
    .join(', ');
}

function spread(values: readonly number[]): string {
  if (values.length === 0) return '';
  const std = values.length > 1 ? ` ± ${shownShare(unbiasedStd(values))}` : '';
  return shownShare(mean(values)) + std;
}

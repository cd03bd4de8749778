import { mean, unbiasedStd } from '../algorithms/statistics.ts';
import { shownDuration, shownShare } from '../tracking/progress.ts';
import type { RunSummary } from '../training/report.ts';
import type { SweepPlan, SweepRun } from './sweep-plan.ts';

/** A run of a sweep and how far it is. */
export interface SweepOutcome extends SweepRun {
  readonly status: 'waiting' | 'done' | 'failed';
  readonly summary?: RunSummary;
}

/** Success of the variants, each over its seeds: a table in Markdown. */
export function sweepReport(plan: SweepPlan, outcomes: readonly SweepOutcome[]): string {
  const done = outcomes.filter(({ status }) => status === 'done').length;
  const failed = outcomes.filter(({ status }) => status === 'failed').length;
  const variants = [...new Set(outcomes.map(({ variant }) => variant))];
  const rows = variants.flatMap(variant => variantRows(variant, outcomes));
  return [
    `# ${plan.name}`,
    '',
    `${done} of ${outcomes.length} runs done${failed > 0 ? `, ${failed} failed` : ''}.`,
    '',
    '| variant | tag | success before | success after | of each seed | time |',
    '|---|---|---|---|---|---|',
    ...rows,
    '',
    'Success on the validation levels at the end of each run: mean ± standard deviation over the seeds.',
    '',
  ].join('\n');
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
      return success === undefined ? status : shownShare(success);
    })
    .join(', ');
}

function spread(values: readonly number[]): string {
  if (values.length === 0) return '';
  const std = values.length > 1 ? ` ± ${shownShare(unbiasedStd(values))}` : '';
  return shownShare(mean(values)) + std;
}

import { basename } from 'node:path';
import { replaceFileSync } from '../../../shared/replace-file.ts';
import { levelSeeds } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import { shownCount, shownDuration, shownReturn, shownShare } from '../../tracking/progress.ts';
import type { LoopOutcome, StopReason } from '../loop.ts';
import { validationSets } from '../validation.ts';
import type { TrainerState, ValidationRecord } from './checkpoint.ts';
import type { RunFolder } from './run-folder.ts';

/** Outcome of a run, for programs; shares from 0 to 1. */
export interface RunSummary {
  readonly run: string;
  readonly ended: LoopOutcome['ended'];
  /** Why it stopped early, in words. */
  readonly reason?: string;
  readonly step: number;
  readonly steps: number;
  readonly episodes: number;
  readonly sampled_tokens: number;
  readonly trained_tokens: number;
  readonly seconds: number;
  readonly before?: ValidationSummary;
  readonly after?: ValidationSummary;
  /** The best value of the monitored metric; absent without one. */
  readonly best?: { readonly metric: string; readonly step: number; readonly value: number };
  readonly references: {
    readonly [tag: string]: { readonly random: number | null; readonly optimum: number | null };
  };
}

interface TagSummary {
  readonly success: number;
  readonly low: number;
  readonly high: number;
  /** Mean return; absent in summaries of earlier versions. */
  readonly return?: number;
}

interface ValidationSummary {
  readonly step: number;
  readonly success: number;
  readonly tags: {
    readonly [tag: string]: TagSummary;
  };
}

const EARLY_STOP_REASONS: { readonly [type in StopReason]: string } = {
  empty_batches: 'the filter kept no group, iteration after iteration',
  reward_std: 'the episodes of a group have become all alike: their returns hardly differ any more',
  low_success: 'validation success stayed near nothing, and the return did not rise',
  plateau: 'the monitored metric did not improve any more',
  target: 'the monitored metric reached its target',
  max_env_steps: 'the budget of training.max_env_steps was used',
  max_sampled_tokens: 'the budget of training.max_sampled_tokens was used',
  stop_after: 'the iteration of training.stop_after was over',
  time_limit: 'the time of training.max_seconds was over',
};

function summarize(run: RunFolder, settings: RunSettings, outcome: LoopOutcome): RunSummary {
  const { state, ended } = outcome;
  const first = state.validations.at(0);
  const last = state.validations.at(-1);
  const tags = validationTags(settings);
  return {
    run: run.path,
    ended,
    ...(isEarly(ended) ? { reason: EARLY_STOP_REASONS[ended] } : {}),
    step: state.step,
    steps: settings.training.steps,
    episodes: state.episodes,
    sampled_tokens: state.sampledTokens,
    trained_tokens: state.trainedTokens,
    seconds: state.seconds,
    ...(first ? { before: validationSummary(first, tags) } : {}),
    ...(last ? { after: validationSummary(last, tags) } : {}),
    ...(state.monitor ? { best: { metric: settings.training.monitor.metric, ...state.monitor.best } } : {}),
    references: Object.fromEntries(
      tags.map(tag => [
        tag,
        { random: settings.tags[tag].random_success, optimum: settings.tags[tag].optimum_success },
      ]),
    ),
  };
}

/** Writes `summary.json` and `report.md` into the run's folder. */
export function writeReport(run: RunFolder, settings: RunSettings, outcome: LoopOutcome): RunSummary {
  const summary = summarize(run, settings, outcome);
  replaceFileSync(run.summary, `${JSON.stringify(summary, null, 1)}\n`);
  replaceFileSync(run.report, reportText(summary, outcome, settings));
  return summary;
}

function isEarly(ended: LoopOutcome['ended']): ended is StopReason {
  return ended !== 'finished' && ended !== 'stopped';
}

function validationTags(settings: RunSettings): readonly string[] {
  return settings.validation.tags ?? settings.train_tags;
}

function validationSummary(record: ValidationRecord, tags: readonly string[]): ValidationSummary {
  const of = (tag: string, name: string) => record.metrics[`val-env/${tag}/${name}`];
  return {
    step: record.step,
    success: record.metrics['val-env/success'],
    tags: Object.fromEntries(
      tags.map(tag => [
        tag,
        {
          success: of(tag, 'success'),
          low: of(tag, 'success_low'),
          high: of(tag, 'success_high'),
          return: of(tag, 'episodic_return'),
        },
      ]),
    ),
  };
}

function reportText(
  summary: RunSummary,
  { state, warnings = [] }: LoopOutcome,
  settings: RunSettings,
): string {
  const tags = validationTags(settings);
  const { validation } = settings;
  const rows = state.validations.map(record => {
    const cells = tags.map(tag => {
      const { success, low, high, return: earned } = validationSummary(record, tags).tags[tag];
      const succeeds = state.validations.some(({ metrics }) => metrics[`val-env/${tag}/success`] > 0);
      return `${shownShare(success)} (${shownShare(low)} to ${shownShare(high)})${succeeds ? '' : `, return ${shownReturn(earned!)}`}`;
    });
    return `| ${record.step} | ${shownDuration(record.seconds)} | ${cells.join(' | ')} |`;
  });
  const references = tags.map(tag => {
    const { random, optimum } = summary.references[tag];
    const known = [
      ...(random === null ? [] : [`random policy ${shownShare(random)}`]),
      ...(optimum === null ? [] : [`optimum ${shownShare(optimum)}`]),
    ];
    return `- ${tag} (${settings.tags[tag].env_id}): ${known.join(', ') || 'no reference known'}`;
  });
  return [
    `# ${settings.run.name ?? basename(summary.run)}`,
    '',
    `${summary.ended}${summary.reason ? ` (${summary.reason})` : ''} after ${summary.step} of ${summary.steps} steps: ${shownCount(summary.episodes)} episodes,`,
    `${shownCount(summary.sampled_tokens)} tokens sampled and ${shownCount(summary.trained_tokens)} trained on in ` +
      `${shownDuration(summary.seconds)}; seed ${settings.seed}.`,
    '',
    `Success on ${validation.episodes} validation episodes (seeds from ${levelSeeds(settings).validation}, temperature ` +
      `${validation.temperature}), with the 95 % interval:`,
    '',
    `| step | time | ${tags.join(' | ')} |`,
    `|---|---|${tags.map(() => '---|').join('')}`,
    ...rows,
    '',
    ...references,
    ...setLines(state, settings),
    ...bestLine(summary),
    ...reasoningLines(state),
    ...warnings.flatMap(warning => ['', `Warning: ${warning}.`]),
    '',
    'The whole configuration is in `config.yaml`, every number of every step in `metrics.jsonl`.',
    '',
  ].join('\n');
}

/** The further sets of the last validation, each tag with its interval. */
function setLines({ validations }: TrainerState, settings: RunSettings): string[] {
  const sets = validationSets(settings);
  const last = validations.at(-1);
  if (sets.length === 0 || !last) return [];
  const rows = sets.flatMap(({ name, plan }) =>
    plan.tags.map(({ tag }) => {
      const of = (what: string) => shownShare(last.metrics[`val-env/${name}/${tag}/${what}`]);
      return `| ${name} | ${tag} | ${plan.sampling.temperature} | ${of('success')} (${of('success_low')} to ${of('success_high')}) |`;
    }),
  );
  const head = ['| set | tag | temperature | success |', '|---|---|---|---|'];
  return ['', `Further validation sets at step ${last.step}:`, '', ...head, ...rows];
}

function bestLine({ best }: RunSummary): string[] {
  return best ? ['', `Best ${best.metric}: ${best.value} at step ${best.step}.`] : [];
}

/** The regimes that the reasoning went through, where any was named. */
function reasoningLines({ collapse }: TrainerState): string[] {
  const history = collapse?.watch?.history ?? [];
  if (history.length === 0) return [];
  const named = history.map(({ step, regime }) => `${regime.replaceAll('_', ' ')} from step ${step}`);
  return ['', `Reasoning: ${named.join(', ')} (docs/how-to/read-the-diagnostics.md).`];
}

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { stringify } from 'yaml';
import { RUN_FILES, type RunStatus, type ValidationPoint } from '../../../shared/run-folder/run-files.ts';
import { VERSION } from '../../../shared/version.ts';
import { loraConfig } from '../../config/sections/lora.ts';
import type { RunSettings } from '../../config/settings.ts';
import { parseModelName } from '../../hub/model-name.ts';
import { shownShare } from '../../tracking/progress.ts';
import type { EvaluationRow } from '../evaluate/evaluation.ts';
import { validationCurve } from './validation-curve.ts';

/** Contents of a card. */
export interface CardParts {
  /** `organization/name`. */
  readonly id: string;
  /** True if the files are an adapter of PEFT. */
  readonly adapter: boolean;
  /** The base that the adapter's config names, or null. */
  readonly base: string | null;
  readonly license?: string;
  /** The run that the model is of; undefined for a model from elsewhere. */
  readonly run?: { readonly folder: string; readonly settings: RunSettings; readonly step: number };
}

/** Sections of the settings that say how a model was trained, and hold no addresses or tokens. */
const SHOWN = [
  'seed',
  'recipe',
  'algorithm',
  'loss',
  'optimizer',
  'training',
  'warm_start',
  'tags',
  'train_tags',
] as const;

/** File of the curve next to the card. */
export const CURVE_FILE = 'validation.svg';

/** Validations of a run; none where it has no status. */
export function validationsOf(folder: string): readonly ValidationPoint[] {
  return readJson<RunStatus>(join(folder, RUN_FILES.status))?.validations ?? [];
}

/** The `README.md` of a model on a hub. It shows {@link CURVE_FILE} where {@link validationCurve} draws one. */
export function modelCard(parts: CardParts): string {
  const { id, adapter, run } = parts;
  const init = run?.settings.policy.init;
  const base = [parts.base, init].find(name => name && parseModelName(name));
  const baseId = base ? parseModelName(base)!.id : undefined;
  const head = {
    library_name: adapter ? 'peft' : 'transformers',
    pipeline_tag: 'text-generation',
    tags: ['ragen', 'reinforcement-learning', ...(adapter ? ['lora'] : [])],
    ...(baseId ? { base_model: baseId, base_model_relation: adapter ? 'adapter' : 'finetune' } : {}),
    ...(parts.license ? { license: parts.license } : {}),
  };
  const sections = [
    `# ${id.split('/')[1]}`,
    `${adapter ? 'A LoRA adapter' : 'A language model'}${baseId ? ` of [${baseId}](https://huggingface.co/${baseId})` : ''}, trained with ragen ${VERSION}${
      run ? ` in ${environments(run.settings)} for ${run.step} iterations` : ''
    }.`,
    usage(parts, baseId),
    ...(run ? results(run.folder) : []),
    ...(run ? [training(run.settings, run.folder)] : []),
  ];
  return `---\n${stringify(head)}---\n\n${sections.join('\n\n')}\n`;
}

function environments({ tags, train_tags }: RunSettings): string {
  return [...new Set(train_tags.map(tag => tags[tag].env_id))].join(', ') || 'conversations';
}

function usage({ id, adapter }: CardParts, base: string | undefined): string {
  const python = adapter
    ? [
        'from peft import AutoPeftModelForCausalLM',
        '',
        `model = AutoPeftModelForCausalLM.from_pretrained("${id}")${base ? '' : '  # base_model_name_or_path must be here'}`,
      ]
    : [
        'from transformers import AutoModelForCausalLM, AutoTokenizer',
        '',
        `model = AutoModelForCausalLM.from_pretrained("${id}")`,
        `tokenizer = AutoTokenizer.from_pretrained("${id}")`,
      ];
  return ['## Use', '', '```python', ...python, '```', '', '```sh', `ragen serve ${id}`, '```'].join('\n');
}

/** The curve of validation, and evaluations, each with its interval. */
function results(folder: string): string[] {
  const points = validationsOf(folder);
  const interval = (low?: number, high?: number) =>
    low === undefined || high === undefined ? '' : `${shownShare(low)} to ${shownShare(high)}`;
  const curve = table(
    ['iteration', 'success', '95 % interval'],
    points.map(({ step, success, low, high }) => [String(step), shownShare(success), interval(low, high)]),
  );
  const picture =
    validationCurve(points) === undefined ? '' : `![Success of validation by iteration](${CURVE_FILE})\n\n`;
  const evaluations = join(folder, RUN_FILES.evaluations);
  const latest = existsSync(evaluations)
    ? readdirSync(evaluations)
        .filter(name => name.endsWith('.json'))
        .sort()
        .at(-1)
    : undefined;
  const rows =
    (latest && readJson<{ rows: readonly EvaluationRow[] }>(join(evaluations, latest))?.rows) || [];
  const evaluated = table(
    ['who plays', 'task', 'tokens drawn', 'episodes', 'success', '95 % interval'],
    rows.map(row => [
      basename(row.policy),
      row.tag,
      row.mode,
      String(row.episodes),
      shownShare(row.success),
      interval(row.success_low, row.success_high),
    ]),
  );
  return [
    ...(points.length > 0 ? [`## Validation while training\n\n${picture}${curve}`] : []),
    ...(rows.length > 0 ? [`## Evaluation\n\n${evaluated}`] : []),
  ];
}

function training(settings: RunSettings, folder: string): string {
  const shown: Record<string, unknown> = Object.fromEntries(SHOWN.map(key => [key, settings[key]]));
  if (settings.policy.lora) shown.lora = loraConfig(settings.policy.lora);
  return `## Training\n\nRun \`${basename(folder)}\`. The settings that matter:\n\n\`\`\`yaml\n${stringify(shown)}\`\`\``;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) =>
    `| ${cells.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

function readJson<T>(file: string): T | undefined {
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as T) : undefined;
}

import { TASKS, type Task } from './tasks.ts';

/** Success after a stage, as validation samples; shares from 0 to 1. */
export interface Stage {
  readonly name: string;
  /** Number of iterations of reinforcement learning. */
  readonly iterations: number;
  /** Trained on, in this stage. */
  readonly episodes: number;
  readonly success: number;
  readonly low: number;
  readonly high: number;
}

/** Greedy episodes on the same levels by the policy in process and by the adapter that is served. */
export interface Served {
  readonly levels: number;
  readonly local: number;
  readonly endpoint: number;
  /** Levels with the same text from both, letter for letter. */
  readonly same: number;
}

/** PEFT's result for the adapter's folder, or the reason it was not run. */
export type Loaded = { readonly tokens: number; readonly difference: number } | { readonly skipped: string };

/** A seed that is finished. */
export interface StoryRow {
  readonly task: string;
  readonly seed: number;
  readonly recipe: string;
  readonly stages: readonly Stage[];
  readonly served: Served;
  readonly peft: Loaded;
}

/** Contents of docs/results/data/chat-model.json. */
export interface StoryData {
  readonly rows: readonly StoryRow[];
}

const percent = (share: number) => (100 * share).toFixed(1);

/** Success with its interval. */
export function shownSuccess({ success, low, high }: Pick<Stage, 'success' | 'low' | 'high'>): string {
  return `${percent(success)} % (${percent(low)}–${percent(high)})`;
}

/** PEFT's result for an adapter, in words. */
export function shownLoaded({ peft }: StoryRow): string {
  if ('skipped' in peft) return `skipped: ${peft.skipped}`;
  return `${peft.difference.toExponential(1)} over ${peft.tokens} tokens`;
}

/** The page of the data, in Markdown. */
export function chatModelPage({ rows }: StoryData): string {
  const tags = [...new Set(rows.map(({ task }) => task))];
  return [
    '# A pretrained chat model',
    '',
    '_Reference._ Written by `npm run bench:chat-model` from [its data](./data/chat-model.json), each section by the command',
    'that it begins with.',
    '',
    'A chat model in the Hugging Face layout follows the commands of',
    '[Train a pretrained model](../how-to/pretrained-models.md): `sft`, `train` with adapters, `evaluate`, `serve`,',
    "`evaluate --policy endpoint`. The command makes the model: Qwen2's decoder with 2.0 million weights, a byte-level BPE",
    'tokenizer of 512 tokens and a ChatML template, pretrained by `sft --data` on everyday chats. Success is sampled at',
    'temperature 1, with its 95 % interval. After `sft` and `train` each seed has',
    '',
    '```sh',
    'npm run trainer -- evaluate <run> --policy checkpoint',
    'npm run trainer -- serve <taught> --adapter tuned=<adapter> --context <policy.context>',
    'npm run trainer -- evaluate <run> --policy endpoint validation.temperature=0 \\',
    '  endpoint.url=http://127.0.0.1:8000/v1 endpoint.model=tuned endpoint.continue_final_message=true',
    '```',
    '',
    ...tags.flatMap(tag => taskSection(tag, rows)),
  ].join('\n');
}

function taskSection(tag: string, all: readonly StoryRow[]): string[] {
  const rows = all.filter(({ task }) => task === tag);
  const stages = rows[0].stages.map(({ name }) => name);
  const head = ['seed', ...stages, 'iterations', 'episodes of reinforcement learning'];
  const task = TASKS.find(one => one.tag === tag)!;
  return [
    `## ${tag}`,
    '',
    `\`npm run bench:chat-model -- --tasks ${tag} --seeds ${rows.map(({ seed }) => seed).join(',')}\``,
    '',
    ...table(head, rows, ({ seed, stages }) => [
      String(seed),
      ...stages.map(shownSuccess),
      String(stages.at(-1)!.iterations),
      String(stages.at(-1)!.episodes),
    ]),
    ...overlaps(rows),
    'The adapter in process and served, greedily, and the largest difference of log-probabilities when PEFT loads it:',
    '',
    ...table(['seed', 'in process', 'served', 'levels with the same text', 'PEFT'], rows, row => [
      String(row.seed),
      `${percent(row.served.local)} %`,
      `${percent(row.served.endpoint)} %`,
      `${row.served.same} of ${row.served.levels}`,
      shownLoaded(row),
    ]),
    ...(task.note === undefined ? [] : [...task.note, '']),
    ...commands(task),
  ];
}

/** Which of the rises the intervals leave open. */
function overlaps(rows: readonly StoryRow[]): string[] {
  const open = rows.flatMap(({ seed, stages }) =>
    stages
      .slice(1)
      .flatMap(({ name, low }, i) => (low <= stages[i].high ? [`${name} with seed ${seed}`] : [])),
  );
  return open.length === 0
    ? []
    : [`The interval overlaps with that of the stage before: ${open.join(', ')}.`, ''];
}

function table(
  head: readonly string[],
  rows: readonly StoryRow[],
  cells: (row: StoryRow) => readonly string[],
): string[] {
  const line = (texts: readonly string[]) => `| ${texts.join(' | ')} |`;
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(row => line(cells(row))), ''];
}

/** The commands of a seed, with `<…>` for the folders of what came before. */
function commands({ config, recipe, settings, demonstrations, training }: Task): string[] {
  const shown = (texts: readonly string[]) =>
    texts.map(text => (/[[\]{}]/.test(text) ? `'${text}'` : text)).join(' ');
  const command = (text: string, ...lists: readonly (readonly string[])[]) =>
    [`npm run trainer -- ${text}`, ...lists.map(list => `  ${shown(list)}`)].join(' \\\n');
  return [
    '```sh',
    command(`sft ${config} policy.init=<pretrained> seed=<seed>`, settings, demonstrations),
    command(
      `train ${config} '${`recipe=${recipe}`}' policy.init=<taught> warm_start=null seed=<seed>`,
      settings,
      training,
    ),
    '```',
    '',
  ];
}

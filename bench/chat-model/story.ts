import { once } from 'node:events';
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { lacksPython, runPython } from '../../test/python.test-data.ts';
import type { EvaluationRow } from '../../trainer/commands/evaluate/evaluation.ts';
import { readJsonLines } from '../../trainer/tracking/jsonlines.ts';
import { latestCheckpoint } from '../../trainer/training/run-folder/checkpoint.ts';
import type { RunSummary } from '../../trainer/training/run-folder/report.ts';
import { runFolderAt } from '../../trainer/training/run-folder/run-folder.ts';
import { type PlannedRun, runTrainer, trainerArguments } from '../claims/run-trainer.ts';
import { startServe } from '../serve-process.ts';
import { writeChats, writeFreshModel } from './model.ts';
import { type Loaded, type Stage, type StoryRow, shownLoaded, shownSuccess } from './page.ts';
import { PRETRAINING, type Task } from './tasks.ts';

const PEFT_PROGRAM = new URL('./score.py', import.meta.url);
/** Number of episodes with responses that PEFT scores. */
const SCORED = 16;
const SERVED_NAME = 'tuned';

/** Folders and the environment server of a story. */
export interface Place {
  readonly folder: string;
  /** Folder of the tokenizer and chat template. */
  readonly tokenizer: string;
  /** Address of the environment server. */
  readonly server: string;
}

/** Runs the commands of the docs with the pretrained model; continues where it was stopped. */
export async function tellStory(
  task: Task,
  seed: number,
  place: Place,
  log: (text: string) => void,
): Promise<StoryRow> {
  const { tag, config, recipe } = task;
  const pretrained = await pretrain(place);
  const settings = [...task.settings, `seed=${seed}`];
  const before = await evaluated(place, `${tag}-pretrained`, [
    ...[config, '--policy', pretrained, ...task.settings, `policy.init=${pretrained}`, serversText(place)],
  ]);
  const untaught = stageOf('pretrained', before);
  log(`pretrained: ${shownSuccess(untaught)}`);
  const servers = serversText(place);
  const base = await trained(place, `${tag}-sft-seed-${seed}`, {
    command: 'sft',
    config,
    overrides: [...settings, ...task.demonstrations, `policy.init=${pretrained}`],
  });
  const baseEvaluated = await evaluated(place, `${tag}-taught-seed-${seed}`, [
    ...[base.run, '--policy', 'checkpoint', servers],
  ]);
  const taught = stageOf('sft', baseEvaluated);
  log(`sft: ${shownSuccess(taught)}`);
  const tuned = await trained(place, `${tag}-trained-seed-${seed}`, {
    command: 'train',
    config,
    overrides: [
      `recipe=${recipe}`,
      ...settings,
      ...task.training,
      `policy.init=${base.policy}`,
      'warm_start=null',
    ],
  });
  const local = await evaluated(place, `${tag}-local-seed-${seed}`, [
    ...[tuned.run, '--policy', 'checkpoint', servers],
  ]);
  const learned = stageOf(recipe, local, tuned.summary);
  log(`${recipe}: ${shownSuccess(learned)} after ${learned.iterations} iterations`);
  const endpoint = await whileServed(base.policy, tuned.policy, task.context, url =>
    evaluated(place, `${tag}-endpoint-seed-${seed}`, [
      ...[tuned.run, '--policy', 'endpoint', servers, 'validation.temperature=0'],
      ...[`endpoint.url=${url}/v1`, `endpoint.model=${SERVED_NAME}`, 'endpoint.continue_final_message=true'],
    ]),
  );
  const row: StoryRow = {
    task: tag,
    seed,
    recipe,
    stages: [untaught, taught, learned],
    served: {
      levels: local.greedy.length,
      local: local.rows[0].success,
      endpoint: endpoint.rows[0].success,
      same: local.greedy.filter((episode, i) => said(episode) === said(endpoint.greedy[i])).length,
    },
    peft: await scoredByPeft(place, tuned.policy, local.sampled.slice(0, SCORED)),
  };
  const { served } = row;
  log(
    `greedy: ${(100 * served.local).toFixed(1)} % in process, ${(100 * served.endpoint).toFixed(1)} % served, the same text on ${served.same} of ${served.levels} levels`,
  );
  log(`PEFT: ${shownLoaded(row)}`);
  return row;
}

const serversText = ({ server }: Place) => `servers=${JSON.stringify([{ url: server }])}`;

/** A model with fresh weights that has learned everyday chats: its folder, as people publish theirs. */
async function pretrain(place: Place): Promise<string> {
  const fresh = join(place.folder, 'fresh');
  const chats = join(place.folder, 'chats.jsonl');
  if (!existsSync(chats)) {
    await writeFreshModel(fresh, place.tokenizer);
    writeChats(chats, PRETRAINING.chats);
  }
  const overrides = [
    ...PRETRAINING.settings,
    `policy.init=${fresh}`,
    `warm_start.files=${JSON.stringify([chats])}`,
  ];
  await finished(place, 'pretrained', { command: 'sft', config: PRETRAINING.config, overrides });
  const published = join(place.folder, 'model');
  cpSync(latestCheckpoint(runFolderAt(join(place.folder, 'pretrained')))!.policy, published, {
    recursive: true,
    filter: path => !basename(path).startsWith('optimizer'),
  });
  return published;
}

type Planned = Pick<PlannedRun, 'command' | 'config' | 'overrides'>;

/** Runs a command of the trainer to its end; nothing where it ended before. @returns the run's folder */
async function finished(place: Place, name: string, planned: Planned): Promise<RunSummary> {
  const { summary } = runFolderAt(join(place.folder, name));
  if (!existsSync(summary)) {
    const { folder, server } = place;
    const status = await runTrainer(trainerArguments({ ...planned, folder, name, server }), 'ignore');
    if (status !== 0) throw new Error(`${name}: the trainer ended with status ${status}`);
  }
  return JSON.parse(readFileSync(summary, 'utf8')) as RunSummary;
}

interface Trained {
  readonly run: string;
  /** Folder of the policy that came out. */
  readonly policy: string;
  readonly summary: RunSummary;
}

async function trained(place: Place, name: string, planned: Planned): Promise<Trained> {
  const summary = await finished(place, name, planned);
  const run = join(place.folder, name);
  return { run, policy: latestCheckpoint(runFolderAt(run))!.policy, summary };
}

/** The stage that an evaluation measured: the last of its rows, which was sampled. */
function stageOf(name: string, { rows }: Evaluated, { step, episodes } = { step: 0, episodes: 0 }): Stage {
  const { success, success_low: low, success_high: high } = rows.at(-1)!;
  return { name, iterations: step, episodes, success, low, high };
}

interface Evaluated {
  readonly rows: readonly EvaluationRow[];
  readonly greedy: readonly PlayedEpisode[];
  /** None where the validation's temperature is 0. */
  readonly sampled: readonly PlayedEpisode[];
}

/** As `evaluate --output` writes it. */
interface PlayedEpisode {
  readonly turns: readonly { readonly llm_raw_response: string }[];
  readonly samples: readonly {
    readonly token_ids: readonly number[];
    readonly mask: readonly number[];
    readonly log_probs: readonly number[];
  }[];
}

const said = ({ turns }: PlayedEpisode) => JSON.stringify(turns.map(turn => turn.llm_raw_response));

/** Runs `evaluate`; nothing where it ended before. */
async function evaluated({ folder }: Place, name: string, args: readonly string[]): Promise<Evaluated> {
  const output = join(folder, name);
  const file = join(output, 'evaluation.json');
  if (!existsSync(file)) {
    const status = await runTrainer(['evaluate', ...args, '--output', output, '--quiet'], 'ignore');
    if (status !== 0) throw new Error(`${name}: evaluate ended with status ${status}`);
  }
  const { rows } = JSON.parse(readFileSync(file, 'utf8')) as Pick<Evaluated, 'rows'>;
  const files = readdirSync(output).filter(name => name.endsWith('.jsonl'));
  const episodesOf = (greedy: boolean) =>
    files
      .filter(name => name.endsWith('-greedy.jsonl') === greedy)
      .flatMap(name => readJsonLines(join(output, name)) as unknown as PlayedEpisode[]);
  return { rows, greedy: episodesOf(true), sampled: episodesOf(false) };
}

/** Calls a function with the address of `serve`, which has an adapter next to its base. */
async function whileServed<T>(
  base: string,
  adapter: string,
  context: number,
  call: (url: string) => Promise<T>,
): Promise<T> {
  const args = ['--adapter', `${SERVED_NAME}=${adapter}`, '--context', String(context)];
  const { url, child } = await startServe(base, args);
  try {
    return await call(url);
  } finally {
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await ended;
  }
}

/** PEFT loads the adapter's folder and scores what the policy said in process. */
async function scoredByPeft(
  place: Place,
  adapter: string,
  episodes: readonly PlayedEpisode[],
): Promise<Loaded> {
  const lacking = lacksPython('torch', 'transformers', 'peft');
  if (lacking !== false) return { skipped: lacking };
  const samples = episodes.flatMap(episode => episode.samples);
  const input = join(place.folder, 'peft.json');
  writeFileSync(input, JSON.stringify({ sequences: samples.map(sample => sample.token_ids) }));
  const scores = (await runPython(PEFT_PROGRAM, adapter, input)) as unknown as readonly (readonly number[])[];
  const differences = samples.flatMap(({ mask, log_probs }, i) =>
    mask.flatMap((learned, at) => (learned === 1 ? [Math.abs(log_probs[at] - scores[i][at - 1])] : [])),
  );
  return { tokens: differences.length, difference: Math.max(...differences) };
}

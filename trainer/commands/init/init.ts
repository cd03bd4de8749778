import { cpSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, extname, join } from 'node:path';
import { stringify } from 'yaml';
import { closing } from '../../../shared/closing.ts';
import { overrideConfig } from '../../../shared/config.ts';
import type { JsonObject } from '../../../shared/json.ts';
import { TRAINER } from '../../../shared/program.ts';
import { checkReplaceable } from '../../../shared/replace-file.ts';
import { EnvServer } from '../../client/server.ts';
import { loadRunSettings } from '../../config/load.ts';
import { buildByteTokenizer, saveTokenizer } from '../../models/tokenizer/builder.ts';
import { learnMerges } from '../../models/tokenizer/merges.ts';
import { compactByteWords } from '../../prompts/compact.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { openProgress, shownDuration, shownReturn, silentProgress } from '../../tracking/progress.ts';
import { trainRun } from '../../training/run.ts';
import { createRunFolder } from '../../training/run-folder/run-folder.ts';
import { findServer } from '../../training/setup/find-server.ts';
import { openRunContext } from '../../training/setup/run-context.ts';
import type { OptionsOf } from '../options.ts';
import { INTERRUPTED_STATUS, stopRequests } from '../processes/trainer-process.ts';
import {
  type Baseline,
  baselineOf,
  type Choice,
  type Choices,
  chooseSettings,
  isLongInBytes,
  isShorter,
  mostOf,
  type TokenLengths,
  warningsOf,
} from './choices.ts';
import { describeEnvironment, type Survey, surveyEnvironment } from './survey.ts';

/** The subject of a config file. */
interface ConfigSubject {
  readonly survey: Survey;
  readonly baseline: Baseline;
  /** Address of the environment server. */
  readonly server: string;
  /** Environment settings that differ from their defaults. */
  readonly config: JsonObject;
  /** Name of the environment in the run. */
  readonly tag: string;
  /** Name of the file. */
  readonly file: string;
  /** Absent until measured. */
  readonly lengths?: TokenLengths;
}

const notesOf = ({ survey, lengths }: ConfigSubject): string[] =>
  warningsOf(survey, lengths).map(warning => `Note: ${oneLine(warning)}`);

const inline = (value: unknown): string => stringify(value, { collectionStyle: 'flow', lineWidth: 0 }).trim();

/** A line of the config with a choice and its reason; none for a default. */
const line = <T>(
  key: string,
  choice: Choice<T> | undefined,
  shown = (value: T) => inline(value),
): string[] => (choice === undefined ? [] : [`  ${key}: ${shown(choice.value)} # ${choice.reason}`]);

/** The config as YAML: each choice with its reason on the same line. */
function configText(subject: ConfigSubject, choices: Choices): string {
  const { survey, server, config, tag, file } = subject;
  const { document } = survey;
  const { turns, window, warmStart, steps } = choices;
  const every = Math.ceil(steps.value / 6);
  return `${[
    `# Trains a small policy from random weights on ${document.env_id} (${oneLine(document.title)}). Written by \`${TRAINER} init\`.`,
    `# ${baselineSentence(subject)}`,
    ...notesOf(subject).map(note => `# ${note}`),
    `#   ${TRAINER} train ${file}`,
    '# Every other setting and its default: the same command with --dry-run.',
    'extends: ragen:base # PPO with a value head, prompts of a few tokens',
    `servers: ${inline([{ url: server }])}`,
    `train_tags: ${inline([tag])}`,
    '',
    'tags:',
    `  ${inline(tag)}:`,
    `    env_id: ${inline(document.env_id)}`,
    ...(Object.keys(config).length === 0 ? [] : [`    config: ${inline(config)}`]),
    ...line('  max_turn', turns),
    '    max_actions_per_turn: 1 # the policy sees what each action leads to',
    `    max_actions_per_traj: ${turns.value}`,
    ...(survey.player === 'example'
      ? []
      : [`    random_success: ${subject.baseline.success.toFixed(3)} # shown in the report`]),
    '',
    'policy:',
    ...line('tokenizer', choices.tokenizer),
    ...line('layers', choices.layers),
    ...line('context', choices.context),
    '',
    'rollout:',
    ...line('response_length', choices.responseLength),
    ...(window
      ? [
          '  context_mode: single_turn # the policy sees only the latest observation, which it learns to read sooner',
          ...line('max_context_window', window),
          '  # If an observation makes sense only after earlier ones, raise max_context_window, and policy.context by the same factor.',
        ]
      : []),
    ...line('constrained', choices.constrained),
    ...line('format_penalty', choices.formatPenalty),
    ...line('env_groups', choices.groups),
    '',
    ...(warmStart
      ? [
          'warm_start: # imitates random play, which shows how answers are written and how the world moves, not what to do',
          '  policy: random',
          '  learn: everything',
          ...line('episodes', warmStart),
          '  batch_size: 32',
          '  epochs: 4',
          '',
        ]
      : []),
    'algorithm:',
    ...line('gamma', choices.gamma),
    '  bootstrap: none # an episode that runs out of steps has failed: no reward comes after it',
    ...(window
      ? [
          '  across_samples: true # each turn is one sample, with its own reward and the value of the next turn',
        ]
      : []),
    ...line('reward_scale', choices.rewardScale, exponential),
    ...line('target_kl', choices.targetKl),
    '',
    'optimizer:',
    ...line('learning_rate', choices.learningRate, exponential),
    '  warmup_iterations: 2',
    '',
    'training:',
    ...line('steps', steps),
    `  validate_every: ${every}`,
    `  checkpoint_every: ${every}`,
    '',
    'validation:',
    ...line('episodes', choices.validation),
  ].join('\n')}\n`;
}

/** The score to beat, as a sentence. */
function baselineSentence({ survey, baseline }: ConfigSubject): string {
  const { success, episodes, meanReturn, meanSteps } = baseline;
  const who = survey.player === 'example' ? 'Its example action alone' : 'Random play';
  return `${who} succeeds in ${(100 * success).toFixed(0)} % of ${episodes} episodes, with a return of ${shownReturn(meanReturn)} in ${shownReturn(meanSteps)} steps.`;
}

const oneLine = (text: string): string => text.replaceAll(/\s+/g, ' ').trim();

/** YAML 1.2 reads `2.0e-3` as a number; `0.002` is harder to compare. */
const exponential = (value: number): string => value.toExponential(1);

/** Longest wait for an unresponsive server, in milliseconds. */
const PATIENCE_MS = 3_000;
/** Demonstrations of the trial, just enough for short answers, and its share of an iteration's episodes. */
const TRIAL_DEMONSTRATIONS = 32;
const TRIAL_SHARE = 1 / 4;
const MINI_BATCH = 32;

/**
 * The command `init`: asks a server about an environment, plays it at random, and writes a config that trains a small
 * policy on it. Part of an iteration is tried before the file is written.
 * @param settings of the environment, `key=value` each
 * @returns the exit status
 * @throws Error with the remedy; nothing is written then
 */
export async function init(
  envId: string,
  settings: readonly string[],
  options: OptionsOf<'init'>,
): Promise<number> {
  const tag = tagOf(envId);
  const file = options.out ?? `${envId.replace(/^.*\//, '')}.yaml`;
  const tokenizer = `./${basename(file, extname(file))}-tokenizer`;
  const tokenizerFolder = join(dirname(file), tokenizer);
  refuseExisting(file, options);
  refuseExisting(tokenizerFolder, options);
  checkReplaceable(file);
  const config = overrideConfig({}, settings) as JsonObject;
  const progress = openProgress(process.stderr, 'info');
  using requests = stopRequests(() => {});
  const { signal } = requests;
  const folder = mkdtempSync(join(tmpdir(), 'ragen-init-'));
  try {
    await checkServer(options.servers, signal);
    progress.note(`playing ${envId} at random on ${options.servers}`);
    const survey = await surveyed(envId, config, options.servers);
    const baseline = baselineOf(survey);
    const unmeasured = { survey, baseline, server: options.servers, config, tag, file };
    const bytes = await measured(unmeasured, folder, signal);
    const fewer = isLongInBytes(survey, bytes)
      ? await learned(unmeasured, bytes.words, folder, signal)
      : bytes;
    const isLearned = isShorter(fewer, bytes);
    const lengths = isLearned ? fewer : bytes;
    const subject = { ...unmeasured, lengths };
    const choices = chooseSettings(
      survey,
      lengths,
      isLearned ? { folder: tokenizer, bytes: bytes.turn } : undefined,
    );
    progress.note('trying out part of an iteration');
    const overrides = isLearned ? [learnedSetting(folder)] : [];
    const seconds = await tried(configText(subject, choices), choices, folder, signal, overrides);
    if (isLearned) cpSync(learnedIn(folder), tokenizerFolder, { recursive: true });
    writeFileSync(file, configText(subject, choices), { flag: options.force ? 'w' : 'wx' });
    for (const line of summaryLines(subject, choices, seconds)) console.log(line);
    return 0;
  } catch (error) {
    if (!signal.aborted) throw error;
    return INTERRUPTED_STATUS;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** `Guess` for `me/Guess-v0`: the name of its tag. */
function tagOf(envId: string): string {
  return (
    envId
      .replace(/^.*\//, '')
      .replace(/-v\d+$/, '')
      .replaceAll(/[^A-Za-z0-9._-]/g, '') || 'Environment'
  );
}

/** @throws Error for an existing file that is not to be replaced */
function refuseExisting(file: string, { force }: OptionsOf<'init'>): void {
  if (force || !existsSync(file)) return;
  throw new Error(`${file} is there already: name another file with --out, or replace it with --force`);
}

/** @throws Error where no server answers at the address */
async function checkServer(url: string, signal: AbortSignal): Promise<void> {
  if (!URL.canParse(url) || !/^https?:/.test(url)) {
    throw new Error(
      `--servers takes the address of an environment server, e.g. http://127.0.0.1:8080, got ${url}`,
    );
  }
  await findServer({ servers: [{ url }], rollout: { server_patience_s: 0 } }, () => {}, signal);
}

async function surveyed(envId: string, config: JsonObject, url: string): Promise<Survey> {
  await using server = closing(new EnvServer({ url, retry: { patienceMs: PATIENCE_MS } }));
  return await surveyEnvironment(server, await describeEnvironment(server, envId, config), config);
}

/** Settings of a config that is not written yet. */
function settingsOf(text: string, folder: string, overrides: readonly string[] = []) {
  const file = join(folder, 'init.yaml');
  writeFileSync(file, text);
  return loadRunSettings(file, [`run.folder=${folder}`, ...overrides]);
}

/** Lengths of the observed texts, in tokens of the policy, and the words that are one token in its prompts. */
async function measured(
  subject: ConfigSubject,
  folder: string,
  signal: AbortSignal,
  overrides: readonly string[] = [],
): Promise<TokenLengths & { readonly words: readonly string[] }> {
  const { survey, tag } = subject;
  const settings = settingsOf(configText(subject, chooseSettings(survey)), folder, overrides);
  await using context = closing(await openRunContext(settings, undefined, () => {}, signal));
  const { collector, tokenizer } = context;
  const prompt = collector.prompt(tag);
  const turns = survey.observations.map(
    state => prompt.tokens!.turn({ turn: 1, state, actionsLeft: survey.stepLimit, lastInvalid: true }).length,
  );
  const responses = survey.actions.map(action => tokenizer.encode(prompt.compose([action])).length);
  return { turn: mostOf(turns), response: mostOf(responses), words: compactByteWords([prompt.task]) };
}

/** Writes a tokenizer of the observed texts and returns their lengths in its tokens. */
async function learned(
  subject: ConfigSubject,
  words: readonly string[],
  folder: string,
  signal: AbortSignal,
): Promise<TokenLengths> {
  const { observations, actions } = subject.survey;
  const merges = learnMerges([...observations, ...actions], words);
  await saveTokenizer(buildByteTokenizer(words, merges), learnedIn(folder));
  return measured(subject, folder, signal, [learnedSetting(folder)]);
}

const learnedIn = (folder: string): string => join(folder, 'tokenizer');

const learnedSetting = (folder: string): string => `policy.tokenizer=${JSON.stringify(learnedIn(folder))}`;

/** Seconds of one iteration of the config, measured with part of its episodes after a short warm start. */
async function tried(
  text: string,
  { groups, warmStart }: Choices,
  folder: string,
  signal: AbortSignal,
  overrides: readonly string[],
): Promise<number> {
  const episodes = TRIAL_SHARE * groups.value;
  const settings = settingsOf(text, folder, [
    ...(warmStart
      ? [`warm_start.episodes=${Math.min(TRIAL_DEMONSTRATIONS, warmStart.value)}`, 'warm_start.epochs=1']
      : []),
    `rollout.env_groups=${episodes}`,
    `algorithm.mini_batch_size=${Math.min(MINI_BATCH, episodes)}`,
    'training.steps=1',
    'training.validate_first=false',
    'training.validate_every=0',
    'training.checkpoint_every=0',
    'tracking.tensorboard=false',
    'tracking.trajectories_every=0',
    'diagnostics.collapse.every=0',
    'validation.episodes=1',
    ...overrides,
  ]);
  const run = createRunFolder(settings, basename(folder, extname(folder)));
  await trainRun(run, settings, silentProgress, signal);
  signal.throwIfAborted();
  const rows = readJsonLines(run.metrics) as { readonly [name: string]: number }[];
  return rows.find(row => 'timing_s/step' in row)!['timing_s/step'] / TRIAL_SHARE;
}

const shownSeconds = (seconds: number): string =>
  seconds < 10 ? `${seconds.toFixed(1)} s` : shownDuration(seconds);

/** The declared range of a step's reward. */
function rewards([least, most]: Survey['document']['reward_range']): string {
  if (least === null && most === null) return 'rewards without a declared range';
  return `rewards of a step from ${least ?? '-∞'} to ${most ?? '∞'}`;
}

/** The findings, the choices, and the next commands. */
function summaryLines(
  subject: ConfigSubject,
  { steps, turns, warmStart }: Choices,
  seconds: number,
): string[] {
  const { survey, file, baseline } = subject;
  const { env_id, title, reward_range } = survey.document;
  const total = shownDuration(steps.value * seconds);
  return [
    `${env_id}: ${title}; ${turns.value} turns, ${rewards(reward_range)}`,
    baselineSentence(subject),
    ...notesOf(subject),
    '',
    `${file} trains a policy from random weights on it: ${steps.value} iterations of about ${shownSeconds(seconds)} on this machine, ${total}${warmStart ? ' after the warm start' : ''}.`,
    baseline.success > 0
      ? `Success to beat: ${(100 * baseline.success).toFixed(0)} %.`
      : `Return to beat: ${shownReturn(baseline.meanReturn)}.`,
    '',
    `  ${TRAINER} train ${file}`,
    `  ${TRAINER} train ${file} --dry-run    # every setting, sizes and memory`,
  ];
}

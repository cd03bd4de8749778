import { cpSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, extname, join } from 'node:path';
import { closing } from '../../../shared/closing.ts';
import { overrideConfig } from '../../../shared/config.ts';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { TRAINER } from '../../../shared/program.ts';
import { checkReplaceable } from '../../../shared/replace-file.ts';
import { canonicalJson } from '../../../shared/run-folder/signed-result.ts';
import { EnvServer } from '../../client/server.ts';
import { loadRunSettings } from '../../config/load.ts';
import { longestResponse } from '../../generation/json/response-grammar.ts';
import { buildByteTokenizer, learnMerges, saveTokenizer } from '../../models/tokenizer/builder.ts';
import { compactByteWords } from '../../prompts/compact.ts';
import type { Prompt } from '../../prompts/prompt.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { openProgress, shownDuration, shownReturn, silentProgress } from '../../tracking/progress.ts';
import { trainRun } from '../../training/run.ts';
import { createRunFolder } from '../../training/run-folder/run-folder.ts';
import { findServer } from '../../training/setup/find-server.ts';
import { openRunContext } from '../../training/setup/run-context.ts';
import { readGivenEpisodes } from '../../training/supervised/given-actions.ts';
import type { OptionsOf } from '../options.ts';
import { INTERRUPTED_STATUS, stopRequests } from '../processes/child-program.ts';
import {
  baselineOf,
  type Choices,
  chooseSettings,
  isLongInBytes,
  isShorter,
  MINI_BATCH,
  mostOf,
  type TokenLengths,
} from './choices.ts';
import {
  baselineSentence,
  type ConfigSubject,
  configText,
  type Demonstrations,
  notesOf,
} from './config-text.ts';
import { describeEnvironment, type Survey, spaceType, surveyEnvironment } from './survey.ts';

/** Longest wait for an unresponsive server, in milliseconds. */
const PATIENCE_MS = 3_000;
/** Demonstrations of the trial, just enough for short answers, and its share of an iteration's episodes. */
const TRIAL_DEMONSTRATIONS = 32;
const TRIAL_SHARE = 1 / 4;
/** Seconds of an iteration, and the share of them in which the policy computes, from and below which the environment is named slow. */
const SLOW_S = 30;
const LEAST_BUSY = 0.25;

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
    const { survey, demonstrations } = await surveyed(envId, config, options);
    const baseline = baselineOf(survey);
    const unmeasured = { survey, baseline, server: options.servers, config, tag, file, demonstrations };
    const bytes = await measured(unmeasured, folder, signal);
    const fewer = isLongInBytes(survey, bytes)
      ? await learned(unmeasured, bytes.words, folder, signal)
      : bytes;
    const isLearned = isShorter(fewer, bytes);
    const lengths = isLearned ? fewer : bytes;
    const subject = { ...unmeasured, lengths };
    const choices = chooseSettings(survey, lengths, {
      ...(isLearned ? { learned: { folder: tokenizer, bytes: bytes.turn } } : {}),
      demonstrated: demonstrations?.episodes.map(({ actions }) => actions.length),
    });
    progress.note('trying out part of an iteration');
    const overrides = isLearned ? [learnedSetting(folder)] : [];
    const time = await tried(configText(subject, choices), choices, folder, signal, overrides);
    if (isLearned) cpSync(learnedIn(folder), tokenizerFolder, { recursive: true });
    writeFileSync(file, configText(subject, choices), { flag: options.force ? 'w' : 'wx' });
    for (const line of summaryLines(subject, choices, time)) console.log(line);
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

async function surveyed(
  envId: string,
  config: JsonObject,
  { servers: url, demonstrations: file }: OptionsOf<'init'>,
): Promise<{ readonly survey: Survey; readonly demonstrations?: Demonstrations }> {
  const demonstrations = file === undefined ? undefined : demonstrationsIn(file);
  await using server = closing(new EnvServer({ url, retry: { patienceMs: PATIENCE_MS } }));
  const document = await describeEnvironment(server, envId, config);
  const actions = demonstrations && allActions(document, demonstrations);
  const survey = await surveyEnvironment(
    server,
    actions ? { ...document, example_actions: [...actions] } : document,
    config,
  );
  return { survey, ...(demonstrations ? { demonstrations: { ...demonstrations, actions } } : {}) };
}

/** @throws Error for a file without demonstrations */
function demonstrationsIn(file: string): Demonstrations {
  if (!existsSync(file)) throw new Error(`--demonstrations ${file}: there is no such file`);
  const episodes = readGivenEpisodes([file]);
  if (episodes) return { file, episodes };
  throw new Error(
    `--demonstrations ${file} has no line {"seed": 7, "actions": ["…", …]}: the seed of an episode and its actions, one a turn`,
  );
}

/** Most actions that are one token each. */
const MAX_LISTED = 256;

/** The listed actions and the demonstrated ones; undefined where the environment lists all, names its actions, or they are too many. */
function allActions(
  { action_space, example_actions: listed = [] }: Survey['document'],
  { episodes }: Demonstrations,
): readonly Json[] | undefined {
  if (spaceType(action_space) === 'Discrete') return undefined;
  const all = new Map(
    [...(listed as Json[]), ...episodes.flatMap(({ actions }) => actions)].map(action => [
      canonicalJson(action),
      action,
    ]),
  );
  return all.size === listed.length || all.size > MAX_LISTED ? undefined : [...all.values()];
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
  return {
    turn: mostOf(turns),
    response: mostOf(responses),
    ...(survey.player === 'drawn' ? { schema: schemaIn(prompt) } : {}),
    words: compactByteWords([prompt.task]),
  };
}

/** The longest response where responses can be held to the schema of JSON actions, else why they cannot. */
function schemaIn({ tokens }: Prompt): TokenLengths['schema'] {
  try {
    const grammar = tokens?.grammar;
    return grammar && { longest: longestResponse(grammar) };
  } catch (error) {
    return { fault: (error as Error).message };
  }
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

interface IterationTime {
  readonly seconds: number;
  /** Share in which the policy computes; in the rest it waits for the environment. */
  readonly busy: number;
}

/** Time of one iteration of the config, measured with part of its episodes after a short warm start. */
async function tried(
  text: string,
  { groups, warmStart, passes, miniBatch }: Choices,
  folder: string,
  signal: AbortSignal,
  overrides: readonly string[],
): Promise<IterationTime> {
  const episodes = TRIAL_SHARE * groups.value;
  const settings = settingsOf(text, folder, [
    ...(warmStart ? [`warm_start.episodes=${Math.min(TRIAL_DEMONSTRATIONS, warmStart.value)}`] : []),
    ...(warmStart || passes ? ['warm_start.epochs=1'] : []),
    `rollout.env_groups=${episodes}`,
    ...(miniBatch ? [] : [`algorithm.mini_batch_size=${Math.min(MINI_BATCH, episodes)}`]),
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
  const row = rows.find(row => 'timing_s/step' in row)!;
  return { seconds: row['timing_s/step'] / TRIAL_SHARE, busy: row['perf/policy_busy_ratio'] };
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
  { steps, turns, warmStart, passes }: Choices,
  { seconds, busy }: IterationTime,
): string[] {
  const { survey, file, baseline } = subject;
  const { env_id, title, reward_range } = survey.document;
  const total = shownDuration(steps.value * seconds);
  return [
    `${env_id}: ${title}; ${turns.value} turns, ${rewards(reward_range)}`,
    baselineSentence(subject),
    ...notesOf(subject),
    '',
    `${file} trains a policy from random weights on it: ${steps.value} iterations of about ${shownSeconds(seconds)} on this machine, ${total}${warmStart || passes ? ' after the warm start' : ''}.`,
    baseline.success > 0
      ? `Success to beat: ${(100 * baseline.success).toFixed(0)} %.`
      : `Return to beat: ${shownReturn(baseline.meanReturn)}.`,
    ...(seconds > SLOW_S && busy < LEAST_BUSY
      ? [
          `Nearly all of an iteration is waiting for the environment: answer more episodes at once (\`ragen-env serve --workers\`), or make its steps faster.`,
        ]
      : []),
    '',
    `  ${TRAINER} train ${file}`,
    `  ${TRAINER} train ${file} --dry-run    # every setting, sizes and memory`,
  ];
}

import { stringify } from 'yaml';
import { closing } from '../../../shared/closing.ts';
import { readLogLevel } from '../../../shared/log.ts';
import { ServerUnavailable } from '../../client/retry.ts';
import { baseFolder, hasValueHead, validationTags } from '../../config/derived.ts';
import { configName, loadRunSettings, resumedSettings } from '../../config/load.ts';
import type { RunSettings } from '../../config/settings.ts';
import { criticShape, readShape, runSizes } from '../../config/sizes.ts';
import type { DecoderConfig } from '../../models/config.ts';
import { loadTokenizer } from '../../models/tokenizer/load.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { checkWeights } from '../../policy/checkpoint/checkpoint.ts';
import { findModel, findTokenizer } from '../../policy/checkpoint/model-folder.ts';
import {
  openProgress,
  type Progress,
  shownBytes,
  shownCount,
  shownDuration,
  shownReturn,
  shownShare,
} from '../../tracking/progress.ts';
import { RunLog } from '../../tracking/run-log.ts';
import { trainRun } from '../../training/run.ts';
import type { RunSummary } from '../../training/run-folder/report.ts';
import {
  createRunFolder,
  openRunFolder,
  type RunFolder,
  removeUnused,
} from '../../training/run-folder/run-folder.ts';
import { findServer } from '../../training/setup/find-server.ts';
import { type FirstPrompt, firstPrompts, withFittedContext } from '../../training/setup/first-prompts.ts';
import { freshModel } from '../../training/setup/open-policy.ts';
import { openRunContext } from '../../training/setup/run-context.ts';
import { requireFiles } from '../../training/supervised/supervision.ts';
import { readWarmStart, shownPosition } from '../../training/supervised/warm-start.ts';
import { type LocalSettings, localSettings } from '../hub/local-models.ts';
import type { OptionsOf } from '../options.ts';
import { INTERRUPTED_STATUS, STARTED_BY_VARIABLE, stopRequests } from '../processes/child-program.ts';
import { commandOf, resumeCommand, runFailure } from '../processes/trainer-process.ts';

/** Longest wait for a server to describe the environments, in seconds. */
const PATIENCE_S = 1;

/**
 * Describes a run without starting it, if its model's files and the first prompts of its tags fit: every resolved
 * setting in YAML, followed by comments with its prompts, sizes and memory. A policy from scratch gets its vocabulary
 * from the environments; without a server its sizes leave the vocabulary out and no prompt is checked, which the
 * comments say.
 * @param shown the settings as printed: with models by name
 */
export async function dryRun(
  settings: RunSettings,
  signal: AbortSignal,
  shown: RunSettings = settings,
): Promise<string> {
  const rollout = { ...settings.rollout, server_patience_s: PATIENCE_S, failover_s: PATIENCE_S };
  const impatient = { ...settings, rollout };
  const fitted = await withFittedContext(impatient, () => {}, signal).catch(error => {
    if (error instanceof ServerUnavailable) return impatient;
    throw error;
  });
  const { context, fit_context } = fitted.policy;
  const { model, prompts } = await prepared(fitted, signal);
  const resolved = { ...shown, policy: { ...shown.policy, context, fit_context } };
  const written = (lines: readonly string[]) =>
    `${stringify(resolved)}\n${lines.map(line => `# ${line}\n`).join('')}`;
  if (settings.policy.runtime === 'tinker')
    return written([`policy: ${settings.policy.init} at ${settings.policy.tinker?.url}`, ...prompts]);
  const { parameters, trained, critic, memory, totalBytes, episodesPerIteration, episodes } = runSizes(
    fitted,
    model.config,
    await criticShape(settings, model.config),
  );
  return written([
    `policy: ${parameters} parameters (${shownCount(parameters)})${model.remark}`,
    ...(trained < parameters
      ? [
          `learned: ${trained} of them (${shownCount(trained)}), adapters${hasValueHead(settings) ? ' and value head' : ''}`,
        ]
      : []),
    ...(critic === undefined ? [] : [`critic: ${critic} parameters learned (${shownCount(critic)})`]),
    `episodes: ${episodesPerIteration} an iteration, ${episodes} in ${settings.training.steps} iterations`,
    ...prompts,
    `memory: about ${shownBytes(totalBytes)}`,
    ...memory.map(({ what, bytes }) => `  ${shownBytes(bytes).padStart(9)}  ${what}`),
  ]);
}

interface Model {
  readonly config: DecoderConfig;
  readonly remark: string;
}

interface Prepared {
  readonly model: Model;
  /** Lines about the first prompts. */
  readonly prompts: readonly string[];
}

async function prepared(settings: RunSettings, signal: AbortSignal): Promise<Prepared> {
  const { init, hidden_size } = settings.policy;
  const config = await checkInitialModel(settings);
  const found = config && { config, remark: ` from ${init}` };
  const { rollout } = settings;
  try {
    const folder = baseFolder(settings);
    await using context = closing(await openRunContext(settings, folder, () => {}, signal));
    const { tokenizer } = context;
    const model = found ?? {
      config: freshModel(settings, tokenizer),
      remark: ` from scratch, ${tokenizer.vocabularySize} tokens`,
    };
    // A program writes its own prompts.
    const prompts = rollout.agent
      ? []
      : await firstPrompts(context, {
          seed: settings.validation.seed,
          onFault: (_tag, error) => {
            throw error;
          },
          signal,
        });
    return { model, prompts: prompts.map(promptLine(settings)) };
  } catch (error) {
    if (!(error instanceof ServerUnavailable)) throw error;
    const model = found ?? {
      config: freshModel(settings, { vocabularySize: 1 }),
      remark: ` with one word, and ${hidden_size} for each other: the environments give the vocabulary, and no server answered`,
    };
    return { model, prompts: ['first prompts: not checked against the context, as no server answered'] };
  }
}

const promptLine =
  ({ rollout }: RunSettings) =>
  ({ tag, length, isCut, context, response }: FirstPrompt) => {
    const wanted = rollout.response_length;
    const room = response < wanted ? `${response} of the ${wanted}` : response;
    const taken = isCut ? `${length} tokens, cut to ${context}` : `${length} of ${context} tokens`;
    return `first prompt of ${tag}: ${taken}, with room for ${room} of a response`;
  };

/**
 * The command `train`: a new run from a config, or an old one from its folder.
 * @returns the exit status
 * @throws ConfigError, and Error with the remedy
 */
export async function train(
  config: string | undefined,
  overrides: readonly string[],
  options: OptionsOf<'train'>,
): Promise<number> {
  return trainPrepared(prepare(config, overrides, options), options);
}

/**
 * The command `sft`: only the warm start of a config. The policy is in the run's checkpoint, where `policy.init` of
 * other runs can find it.
 * @returns the exit status
 * @throws ConfigError, and Error when the config has no warm start
 */
export async function supervise(
  config: string,
  overrides: readonly string[],
  options: OptionsOf<'sft'>,
): Promise<number> {
  const data = options.data ? [`warm_start.files=${JSON.stringify(options.data)}`] : [];
  const prepared = prepare(config, [...overrides, ...data, 'training.steps=0'], options);
  if (!prepared.settings.warm_start) {
    throw new Error(`${config} has no \`warm_start\`, the demonstrations to learn; train needs none`);
  }
  return trainPrepared(prepared, options);
}

interface PreparedRun {
  readonly settings: RunSettings;
  /** Opens the run's folder, or makes one with these settings. */
  readonly openRun: (settings: RunSettings) => RunFolder;
  /** The user's command. */
  readonly startCommand: string;
  /** Overrides of a resumed run, which its folder does not store. */
  readonly resumeOverrides: readonly string[];
}

async function trainPrepared(prepared: PreparedRun, options: OptionsOf<'train'>): Promise<number> {
  const { settings, openRun, startCommand, resumeOverrides } = prepared;
  const resume = (run: RunFolder) => resumeCommand(run.path, resumeOverrides);
  const shown = openProgress(process.stderr, options.quiet ? 'silent' : readLogLevel());
  using log = new RunLog(shown.warn);
  const progress = log.logged(shown);
  // Checked before anything waits for a server.
  if (options.resume === undefined) requireFiles(settings.warm_start?.files ?? []);
  if (options.dryRun) {
    using requests = stopRequests(() => {});
    const { signal } = requests;
    const { local, named } = await localSettings(settings, { progress, signal });
    process.stdout.write(await dryRun(local, signal, named));
    return 0;
  }
  let stopping = 'stopping before the run has begun';
  using requests = stopRequests(() => progress.note(stopping));
  const { signal: stop } = requests;
  let models: LocalSettings;
  try {
    models = await localSettings(settings, { progress, signal: stop });
    if (options.resume === undefined) await checkInitialModel(models.local);
    if (validationTags(settings).length > 0) await findServer(settings, progress.warn, stop);
    models = await fitted(models, progress, stop);
  } catch (error) {
    if (!stop.aborted) throw error;
    return INTERRUPTED_STATUS;
  }
  stopping = 'stopping with a checkpoint; press Ctrl-C again to stop at once';
  const run = openRun(models.named);
  const summary = await trainRun(run, models.local, progress, stop, log).catch(error => {
    const isGone = options.resume === undefined && removeUnused(run);
    const failure = runFailure(error, run, isGone ? startCommand : resume(run));
    if (!isGone) log.write(failure.message);
    throw failure;
  });
  if (!summary) {
    const warmStart = readWarmStart(run);
    const where = warmStart ? shownPosition(warmStart.state) : 'before the first step';
    progress.note(`stopped ${where}; continue with: ${resume(run)}`);
    return INTERRUPTED_STATUS;
  }
  for (const line of summaryLines(summary, resume(run))) {
    console.log(line);
    log.write(line);
  }
  return summary.ended === 'stopped' ? INTERRUPTED_STATUS : 0;
}

function prepare(
  config: string | undefined,
  overrides: readonly string[],
  options: OptionsOf<'train'>,
): PreparedRun {
  if (options.resume !== undefined) {
    const more = config === undefined ? overrides : [config, ...overrides];
    const { run, settings } = openRunFolder(options.resume);
    const startCommand = resumeCommand(run.path, more);
    return {
      settings: resumedSettings(settings, more, run.config),
      openRun: () => run,
      startCommand,
      resumeOverrides: more,
    };
  }
  if (config === undefined) {
    throw new Error('train needs a config file, e.g. ragen:quickstart, or --resume <run folder>');
  }
  const settings = loadRunSettings(config, overrides);
  return {
    settings,
    openRun: named => createRunFolder(named, configName(config)),
    startCommand: process.env[STARTED_BY_VARIABLE] ?? commandOf('train', [config, ...overrides]),
    resumeOverrides: [],
  };
}

/** The same with the context that the first prompts need, where the settings ask for that. */
async function fitted(models: LocalSettings, progress: Progress, stop: AbortSignal): Promise<LocalSettings> {
  const local = await withFittedContext(models.local, progress.note.bind(progress), stop);
  const { context, fit_context } = local.policy;
  return { local, named: { ...models.named, policy: { ...models.named.policy, context, fit_context } } };
}

/**
 * Lines about the result of a run, for the end of its output.
 * @param command resumes it
 */
export function summaryLines(summary: RunSummary, command: string): string[] {
  const lines = [
    `${summary.ended}${summary.reason ? `: ${summary.reason}` : ''} at step ${summary.step} of ${summary.steps} after ${shownDuration(summary.seconds)}`,
  ];
  for (const [tag, after] of Object.entries(summary.after?.tags ?? {})) {
    const before = summary.before?.tags[tag];
    const start =
      before && summary.before!.step < summary.after!.step ? `${shownShare(before.success)} → ` : '';
    const at =
      summary.after!.step < summary.step ? ` when last validated, at step ${summary.after!.step}` : '';
    if (after.success === 0 && !before?.success && after.return !== undefined) {
      const from = start && before?.return !== undefined ? `${shownReturn(before.return)} → ` : '';
      lines.push(`${tag}: return ${from}${shownReturn(after.return)}${at}`);
    }
    lines.push(
      `${tag}: success ${start}${shownShare(after.success)}${at} (95 % interval ${shownShare(after.low)} to ${shownShare(after.high)})`,
    );
  }
  lines.push(`run folder: ${summary.run} (report.md, metrics.jsonl, checkpoints)`);
  if (summary.ended === 'stopped') lines.push(`continue with: ${command}`);
  return lines;
}

/**
 * The shape of the model that a run begins with; undefined from scratch.
 * @throws Error naming the unsuitable file or setting
 */
async function checkInitialModel(settings: RunSettings): Promise<DecoderConfig | undefined> {
  const { init } = settings.policy;
  if (init === 'scratch') return undefined;
  if (settings.policy.runtime === 'tinker') {
    await checkTokenizer(baseFolder(settings)!, settings);
    return undefined;
  }
  const config = await readShape(init, settings);
  await checkModel(init, config, settings);
  return config;
}

/**
 * Whether the model of a folder can be trained with the settings, as its files say, without reading its weights.
 * @param config its shape
 * @throws Error naming the file or setting that does not fit
 */
async function checkModel(folder: string, config: DecoderConfig, settings: RunSettings): Promise<void> {
  const { policy } = settings;
  const base = baseFolder(settings);
  if (!policy.fit_context && policy.context > config.maxPositions) {
    throw new RangeError(
      `policy.context ${policy.context} is more than the ${config.maxPositions} positions of ${folder}; policy.fit_context=true takes what the prompts need`,
    );
  }
  const place = await findTokenizer(folder, base);
  const tokenizer = await checkTokenizer(place, settings);
  if (tokenizer.vocabularySize > config.vocabularySize) {
    throw new RangeError(
      `the tokenizer of ${place} has ${tokenizer.vocabularySize} tokens, the model ${config.vocabularySize}: it is another model's`,
    );
  }
  await checkWeights((await findModel(folder, base)).base, config);
}

/**
 * The tokenizer of a folder, if it has what the prompts need.
 * @throws Error naming what is missing
 */
async function checkTokenizer(place: string, { rollout }: RunSettings): Promise<Tokenizer> {
  const tokenizer = await loadTokenizer(place);
  if (rollout.prompt === 'chat' && tokenizer.chatTemplate === undefined) {
    throw new Error(
      `rollout.prompt is chat, and ${place} has no chat template: add chat_template.jinja, or choose the \`compact\` prompt`,
    );
  }
  return tokenizer;
}

import { basename } from 'node:path';
import { baseFolder, levelSeeds, needsReference, secretOf } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import { criticShape, runSizes } from '../../config/sizes.ts';
import { machineMemory } from '../../policy/parts.ts';
import type { Policy } from '../../policy/policy.ts';
import { observer } from '../../rollout/episode-agent.ts';
import { FileReward, HttpReward, type RewardHook } from '../../rollout/rewards/reward-hook.ts';
import { IntervalMeter, meteredAgent } from '../../rollout/tally.ts';
import { type Progress, shownBytes } from '../../tracking/progress.ts';
import type { RunStatusFile } from '../../tracking/run-status.ts';
import type { Tracker } from '../../tracking/tracker.ts';
import type { LoopParts } from '../loop.ts';
import {
  type Checkpoint,
  DamagedCheckpoint,
  initialState,
  saveCheckpoint,
  type TrainerState,
} from '../run-folder/checkpoint.ts';
import type { RunCommands } from '../run-folder/run-control.ts';
import type { RunFolder } from '../run-folder/run-folder.ts';
import type { SourcePosition } from '../sources/episode-source.ts';
import { StreamedSource } from '../sources/streamed-source.ts';
import { runSupervision } from '../supervised/supervision.ts';
import { removeWarmStart, type WarmStartProgress } from '../supervised/warm-start.ts';
import { levelHash, playValidation, validationPlan, validationSets } from '../validation.ts';
import { type FirstPrompt, firstPrompts } from './first-prompts.ts';
import { openGeneration, openPrograms } from './open-generation.ts';
import { attachCritic, openPolicy, openReference, openTinker, referenceFolder } from './open-policy.ts';
import { agentRollouts, openRunContext, type RunContext, sampledAgent } from './run-context.ts';

/** A run that begins or resumes, with its files open. */
export interface RunStart {
  readonly run: RunFolder;
  readonly settings: RunSettings;
  readonly progress: Progress;
  readonly stop: AbortSignal;
  readonly commands: RunCommands;
  readonly tracker: Tracker;
  readonly status: RunStatusFile;
  /** The newest checkpoint; undefined for a run that begins. */
  readonly checkpoint: Checkpoint | undefined;
  /** Progress of a stopped warm start. */
  readonly warmStart: WarmStartProgress | undefined;
}

/** Everything that the training loop needs, and the state to start it from. */
export interface OpenRun {
  readonly parts: LoopParts;
  readonly state: TrainerState;
}

/**
 * Opens a run: environments and policy, the preparation of the first step, then players, rewards and reference.
 * @param closing closes all of it in reverse order, also after an error
 * @returns undefined when the run was stopped before its first step, or before it could resume
 * @throws DamagedCheckpoint, or an Error naming the faulty setting, file or server
 */
export async function openRun(start: RunStart, closing: AsyncDisposableStack): Promise<OpenRun | undefined> {
  const { run, settings, progress, stop, checkpoint, warmStart } = start;
  const folder = checkpoint?.policy ?? warmStart?.policy ?? baseFolder(settings);
  const context = await unlessStopped(stop, openRunContext(settings, folder, progress.warn, stop));
  if (!context) return undefined;
  closing.defer(() => context.close());
  const ends = Object.fromEntries(context.tags.map(({ tag, ends }) => [tag.name, ends]));
  start.status.described(ends);
  closing.defer(() => progress.end());
  if (!(await unlessStopped(stop, checkFirstPrompts(start, context)))) return undefined;

  const policy = await openActor(start, context, folder);
  closing.defer(() => policy.close());
  await reportSizes(start, policy);
  const begun = checkpoint ? undefined : await unlessStopped(stop, begin(start, context, policy));
  const state = checkpoint?.state ?? begun;
  if (!state) return undefined;
  await attachCritic(settings, policy, checkpoint?.policy);
  await prepareOptimizer(settings, policy, checkpoint);
  if (begun) await saveFirst(run, settings, policy, begun);
  removeWarmStart(run);

  const players = await openPlayers(start, context, policy, closing);
  const reference = needsReference(settings)
    ? await openReference(settings, context, policy, referenceFolder(run, settings, state.step))
    : undefined;
  closing.defer(() => reference?.close());
  return { parts: { ...start, ...players, policy, reference, ends }, state };
}

/** The work's result; undefined if it failed because of the stop signal. */
async function unlessStopped<T>(stop: AbortSignal, work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (stop.aborted) return undefined;
    throw error;
  }
}

/** @throws Error naming the tags with first prompts that do not fit the context */
async function checkFirstPrompts(
  { settings, progress, stop }: RunStart,
  context: RunContext,
): Promise<FirstPrompt[]> {
  const prompts = await firstPrompts(context, {
    seed: levelSeeds(settings).training,
    onFault: (tag, error) => progress.warn(`first prompt of ${tag}: ${error.message}`),
    signal: stop,
  });
  for (const { tag, length, context: held } of prompts.filter(({ isCut }) => isCut)) {
    progress.note(
      `first prompt of ${tag}: ${length} tokens, of which the context of ${held} shows the beginning and the end`,
    );
  }
  return prompts;
}

/** @throws DamagedCheckpoint where the checkpoint's model cannot be read */
async function openActor(
  { run, settings, checkpoint, progress }: RunStart,
  context: RunContext,
  folder: string | undefined,
): Promise<Policy> {
  try {
    if (settings.policy.runtime === 'tinker')
      return await openTinker(settings, context, folder, {
        note: progress.note.bind(progress),
        run: run.path,
      });
    return await openPolicy(settings, context, folder);
  } catch (error) {
    throw checkpoint && isDamage(error)
      ? new DamagedCheckpoint(run, checkpoint.folder, error as Error)
      : error;
  }
}

/** True if the error means that a model's files are damaged. */
function isDamage(error: unknown): boolean {
  if (error instanceof SyntaxError) return true;
  return ['SafetensorsError', 'ModelConfigError', 'ModelFileError'].includes((error as Error).name);
}

async function reportSizes({ settings, progress, status }: RunStart, actor: Policy): Promise<void> {
  const { config } = actor;
  if (!config) return progress.note(`policy on ${actor.description}`);
  const { totalBytes, parameters } = runSizes(settings, config, await criticShape(settings, config));
  status.opened(parameters);
  progress.note(
    `policy on ${actor.description}; needs about ${shownBytes(totalBytes)} of memory; ${shownBytes(machineMemory())} available`,
  );
}

/** The preparation of the first step: levels to leave out, warm start, reference. */
async function begin(start: RunStart, context: RunContext, policy: Policy): Promise<TrainerState> {
  const { run, settings, warmStart } = start;
  const resumed = warmStart?.state;
  const startedAt = performance.now();
  const elapsed = () => (resumed?.seconds ?? 0) + (performance.now() - startedAt) / 1000;
  const validationLevels = settings.validation.unseen_levels ? await surveyLevels(start, context) : [];
  if (settings.warm_start) {
    await runSupervision({ ...start, context, policy, resumed, elapsed }, new Set(validationLevels));
  }
  const seconds = elapsed();
  const { reference, reference_endpoint } = settings.policy;
  if (needsReference(settings) && reference === null && reference_endpoint === null) {
    await policy.save(run.reference);
  }
  return { ...initialState(levelSeeds(settings).training), validationLevels, seconds };
}

/** Hashes of the validation levels, from their first states: no action is taken. */
async function surveyLevels({ settings, progress, stop }: RunStart, context: RunContext): Promise<string[]> {
  const player = agentRollouts(context, observer, progress.warn);
  const hashes = new Set<string>();
  for (const plan of [validationPlan(settings), ...validationSets(settings).map(set => set.plan)]) {
    const { episodes } = await playValidation(player, plan, stop);
    for (const episode of episodes) hashes.add(levelHash(episode));
  }
  return [...hashes];
}

/** At the start of a run: a new optimizer, unless it is to be kept, and new averages of the weights. */
export async function prepareOptimizer(
  { training, policy, optimizer: { ema } }: RunSettings,
  actor: Policy,
  checkpoint: Checkpoint | undefined,
): Promise<void> {
  if (training.steps === 0) return;
  const isFresh = (checkpoint?.state.step ?? 0) === 0;
  if (isFresh && !policy.keep_optimizer) await actor.resetOptimizer();
  if (!ema) return;
  if (!actor.averageWeights) throw new Error('optimizer.ema: the policy does not average its weights');
  await actor.averageWeights(ema.decay, isFresh ? undefined : checkpoint?.policy);
}

async function saveFirst(
  run: RunFolder,
  { training }: RunSettings,
  policy: Pick<Policy, 'save'>,
  state: TrainerState,
): Promise<void> {
  const { checkpoint_dtype, keep_checkpoints } = training;
  await saveCheckpoint(run, state, folder => policy.save(folder, checkpoint_dtype), keep_checkpoints);
}

/** Opens the players and the rewards of a run. */
async function openPlayers(
  { run, settings, progress, stop }: RunStart,
  context: RunContext,
  actor: Policy,
  closing: AsyncDisposableStack,
) {
  const note = progress.warn;
  const busy = new IntervalMeter();
  const generation = await openGeneration({
    settings,
    run: basename(run.path),
    context,
    policy: actor,
    note,
  });
  closing.defer(() => generation.close());
  const answering = { policy: actor, generator: generation.generator };
  const programs = await openPrograms(settings, context, answering, note, busy);
  closing.defer(() => programs?.close());
  const agent =
    programs?.agent ??
    meteredAgent(sampledAgent(context, generation.generator, settings.tracking.top_logprobs), busy);
  const reward = openReward(settings);
  closing.defer(() => reward?.close());
  const { collector, actionTokens, tokenizer } = context;
  const policyVersion = () => actor.version;
  const streamed = { settings, collector, agent, reward, stop, note, policyVersion };
  return {
    generation,
    busy,
    rollouts: agentRollouts(context, agent, note, reward),
    openSource: settings.rollout.asynchronous
      ? (position: SourcePosition) => new StreamedSource(streamed, position)
      : undefined,
    actionTokens,
    decode: (ids: ArrayLike<number>) => tokenizer.decode(ids),
    parameterCount: actor.parameterCount,
  };
}

/** The reward hook of a run; undefined where only the environment rewards. @throws Error for a token that is not set */
function openReward({ rollout: { reward } }: RunSettings): RewardHook | undefined {
  if (reward === null) return undefined;
  const { mode, token_env } = reward;
  const timeoutMs = 1000 * reward.timeout_s;
  if (reward.file !== null) {
    return new FileReward({ file: reward.file, mode, timeoutMs, memoryMb: reward.memory_mb });
  }
  const token = secretOf('rollout.reward.token_env', token_env);
  return new HttpReward({
    url: reward.url!,
    mode,
    timeoutMs,
    maxBytes: reward.max_bytes,
    ...(token === undefined ? {} : { token }),
  });
}

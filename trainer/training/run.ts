import { basename } from 'node:path';
import { levelSeeds, needsReference } from '../config/derived.ts';
import { criticShape } from '../config/model-shape.ts';
import type { RunSettings } from '../config/settings.ts';
import { runSizes } from '../config/sizes.ts';
import type { ActorCritic } from '../policy/actor-critic.ts';
import type { LocalPolicy } from '../policy/local-policy.ts';
import { machineMemory } from '../policy/memory.ts';
import type { Policy } from '../policy/policy.ts';
import { meteredAgent } from '../rollout/agents/metered-agent.ts';
import { observer } from '../rollout/agents/observer.ts';
import { IntervalMeter } from '../rollout/collection/interval-meter.ts';
import type { RewardHook } from '../rollout/rewards/reward-hook.ts';
import { dropGroupRows } from '../tracking/group-rows.ts';
import { type Progress, shownBytes } from '../tracking/progress.ts';
import { describeRun, RunStatusFile, validationPoint } from '../tracking/run-status.ts';
import { configuredSinks } from '../tracking/sinks.ts';
import { openTracker, type Tracker } from '../tracking/tracker.ts';
import type { GenerationPort } from './iteration/generation-port.ts';
import { trainLoop } from './loop.ts';
import {
  DamagedCheckpoint,
  initialState,
  latestCheckpoint,
  mendBestCheckpoint,
  saveCheckpoint,
  type TrainerState,
} from './run-folder/checkpoint.ts';
import { type RunSummary, writeReport } from './run-folder/report.ts';
import type { RunFolder } from './run-folder/run-folder.ts';
import { ownRun } from './run-folder/run-ownership.ts';
import { firstPrompts } from './setup/first-prompts.ts';
import { withCritic } from './setup/open-critic.ts';
import { type OpenPrograms, openPrograms } from './setup/open-gateway.ts';
import { openGeneration } from './setup/open-generation.ts';
import { openPolicy, openReference, type ReferencePolicy } from './setup/open-policy.ts';
import { openReward } from './setup/open-reward.ts';
import { isRefreshable, RefreshedReference, referenceFolder } from './setup/refreshed-reference.ts';
import { agentRollouts, openRunContext, type RunContext, sampledAgent } from './setup/run-context.ts';
import type { SourcePosition } from './sources/episode-source.ts';
import { StreamedSource } from './sources/streamed-source.ts';
import { runSupervision } from './supervised/supervision.ts';
import {
  readWarmStart,
  removeWarmStart,
  shownPosition,
  type WarmStartProgress,
} from './supervised/warm-start-progress.ts';
import { levelHash, playValidation, validationPlan, validationSets } from './validation.ts';

/**
 * Trains to the end or until stopped; undefined when it was stopped before its first step or before it could go on.
 * @throws Error where another process trains this run
 */
export async function trainRun(
  run: RunFolder,
  settings: RunSettings,
  progress: Progress,
  stop: AbortSignal,
): Promise<RunSummary | undefined> {
  const { checkpoint, warmStart, status } = ownRun(run, () => {
    mendBestCheckpoint(run);
    const checkpoint = latestCheckpoint(run);
    const warmStart = checkpoint || !settings.warm_start ? undefined : readWarmStart(run);
    return { checkpoint, warmStart, status: openStatus(run, settings, progress, checkpoint) };
  });
  if (checkpoint) progress.note(`resuming ${run.path} at step ${checkpoint.state.step}`);
  else if (warmStart) progress.note(`resuming ${run.path} ${shownPosition(warmStart.state)}`);
  else progress.note(`run folder ${run.path}`);
  const done = {
    step: checkpoint?.state.step ?? -1,
    validation: checkpoint?.state.validations.at(-1)?.step ?? -1,
  };
  const tracker = openTracker(run, done, settings.tracking.tensorboard ? run.tensorboard : undefined, [
    () => status.sink,
    ...configuredSinks(run.path, settings, progress.warn),
  ]);
  dropGroupRows(run.groups, done.step);
  try {
    const shown = { progress: status.progress, tracker, status };
    const parts = { run, settings, stop, checkpoint, warmStart, ...shown };
    const summary = await trainTracked(parts);
    status.end(!summary || summary.ended === 'stopped' ? 'stopped' : 'finished');
    return summary;
  } catch (error) {
    status.end('failed', error as Error);
    throw error;
  } finally {
    await tracker.close();
  }
}

function openStatus(
  run: RunFolder,
  settings: RunSettings,
  progress: Progress,
  checkpoint: ReturnType<typeof latestCheckpoint>,
): RunStatusFile {
  const description = describeRun(settings);
  const validations = (checkpoint?.state.validations ?? []).flatMap(
    ({ step, metrics }) => validationPoint(step, metrics, description) ?? [],
  );
  return new RunStatusFile(run.status, settings, progress, validations);
}

interface TrackedParts {
  readonly run: RunFolder;
  readonly settings: RunSettings;
  readonly progress: Progress;
  readonly stop: AbortSignal;
  readonly tracker: Tracker;
  readonly checkpoint: ReturnType<typeof latestCheckpoint>;
  /** Progress that a stopped warm start has kept. */
  readonly warmStart: WarmStartProgress | undefined;
  readonly status: RunStatusFile;
}

async function trainTracked(parts: TrackedParts): Promise<RunSummary | undefined> {
  const { settings, progress, stop, checkpoint, warmStart } = parts;
  const scratch = settings.policy.init === 'scratch' ? undefined : settings.policy.init;
  const folder = checkpoint?.policy ?? warmStart?.policy ?? scratch;
  const context = await unlessStopped(stop, openRunContext(settings, folder, progress.warn, stop));
  if (!context) return undefined;
  try {
    const onFault = (tag: string, error: Error) => progress.warn(`first prompt of ${tag}: ${error.message}`);
    const checked = firstPrompts(context, { seed: levelSeeds(settings).training, onFault, signal: stop });
    if (!(await unlessStopped(stop, checked))) return undefined;
    const actor = await openPolicy(settings, context, folder).catch(error => {
      throw checkpoint && isDamage(error)
        ? new DamagedCheckpoint(parts.run, checkpoint.folder, error)
        : error;
    });
    return await trainActor(parts, context, actor);
  } finally {
    progress.end();
    await context.close();
  }
}

/** Trains the opened policy and closes it. */
async function trainActor(
  parts: TrackedParts,
  context: RunContext,
  actor: LocalPolicy,
): Promise<RunSummary | undefined> {
  const { run, settings, progress, stop, tracker, checkpoint, warmStart, status } = parts;
  let policy: LocalPolicy | ActorCritic = actor;
  try {
    const critic = await criticShape(settings, actor.config);
    const { totalBytes, parameters } = runSizes(settings, actor.config, critic);
    status.opened(parameters);
    progress.note(
      `policy on ${actor.description}; about ${shownBytes(totalBytes)} of memory, ${shownBytes(machineMemory())} are there`,
    );
    const resumed = warmStart?.state;
    const start = { run, settings, context, policy: actor, tracker, progress, stop, resumed };
    const begun = checkpoint ? undefined : await unlessStopped(stop, begin(start));
    const state = checkpoint?.state ?? begun;
    if (!state) return undefined;
    policy = await withCritic(settings, actor, checkpoint?.policy);
    await prepareOptimizer(settings, actor, checkpoint);
    if (begun) await firstCheckpoint(run, settings, policy, begun);
    removeWarmStart(run);
    return await trainFrom({ ...parts, context, actor, policy }, state);
  } finally {
    await policy.close();
  }
}

/** At the start of a run: a new optimizer, unless it is to be kept, and new averages of the weights. */
async function prepareOptimizer(
  { training, policy, optimizer: { ema } }: RunSettings,
  actor: LocalPolicy,
  checkpoint: TrackedParts['checkpoint'],
): Promise<void> {
  if (training.steps === 0) return;
  const isFresh = (checkpoint?.state.step ?? 0) === 0;
  if (isFresh && !policy.keep_optimizer) await actor.resetOptimizer();
  if (ema) await actor.averageWeights(ema.decay, isFresh ? undefined : checkpoint?.policy);
}

/** True if the error means that a model's files are damaged. */
function isDamage(error: unknown): boolean {
  if (error instanceof SyntaxError) return true;
  return ['SafetensorsError', 'ModelConfigError', 'ModelFileError'].includes((error as Error).name);
}

interface TrainedParts extends TrackedParts {
  readonly context: RunContext;
  readonly actor: LocalPolicy;
  /** The actor, with its critic where it has one. */
  readonly policy: LocalPolicy | ActorCritic;
}

/** Opens what plays and rewards episodes, and trains from a state to the end or until stopped. */
async function trainFrom(parts: TrainedParts, state: TrainerState): Promise<RunSummary> {
  const { run, settings, progress, stop, tracker, context, actor, policy } = parts;
  const note = progress.warn;
  let generation: GenerationPort | undefined;
  let programs: OpenPrograms | undefined;
  let reward: RewardHook | undefined;
  let reference: ReferencePolicy | undefined;
  try {
    const { actionTokens, collector } = context;
    const busy = new IntervalMeter();
    generation = await openGeneration({ settings, run: basename(run.path), context, policy: actor, note });
    const answering = { policy: actor, generator: generation.generator };
    programs = await openPrograms(settings, context, answering, note, busy);
    const agent = programs?.agent ?? meteredAgent(sampledAgent(context, generation.generator), busy);
    reward = openReward(settings);
    const rollouts = agentRollouts(context, agent, note, reward);
    const policyVersion = () => actor.version;
    const streamed = { settings, collector, agent, reward, stop, note, policyVersion };
    const openSource = settings.rollout.asynchronous
      ? (position: SourcePosition) => new StreamedSource(streamed, position)
      : undefined;
    if (needsReference(settings)) reference = await openRunReference(parts, state.step);
    const shown = { tracker, progress, busy, parameterCount: actor.parameterCount };
    const decode = (ids: ArrayLike<number>) => context.tokenizer.decode(ids);
    const episodes = { rollouts, openSource, actionTokens, decode, generation };
    const loop = { settings, run, policy, reference, stop, ...episodes, ...shown };
    return writeReport(run, settings, await trainLoop(loop, state));
  } finally {
    await reference?.close();
    await reward?.close();
    await programs?.close();
    await generation?.close();
  }
}

interface RunStart {
  readonly run: RunFolder;
  /** Position of a stopped warm start. */
  readonly resumed: WarmStartProgress['state'] | undefined;
  readonly settings: RunSettings;
  readonly context: RunContext;
  readonly policy: Policy;
  readonly tracker: Tracker;
  readonly progress: Progress;
  readonly stop: AbortSignal;
}

/** The preparation of the first step: levels to leave out, warm start, reference. */
async function begin(parts: RunStart): Promise<TrainerState> {
  const { run, settings, policy, resumed } = parts;
  const startedAt = performance.now();
  const elapsed = () => (resumed?.seconds ?? 0) + (performance.now() - startedAt) / 1000;
  const validationLevels = settings.validation.unseen_levels ? await surveyLevels(parts) : [];
  if (settings.warm_start) await runSupervision({ ...parts, elapsed }, new Set(validationLevels));
  const seconds = elapsed();
  if (
    needsReference(settings) &&
    settings.policy.reference === null &&
    settings.policy.reference_endpoint === null
  )
    await policy.save(run.reference);
  return { ...initialState(levelSeeds(settings).training), validationLevels, seconds };
}

/** The reference as the iteration finds it. */
async function openRunReference(
  { run, settings, context, actor }: TrainedParts,
  step: number,
): Promise<ReferencePolicy> {
  const reference = await openReference(settings, context, actor, referenceFolder(run, settings, step));
  const every = settings.policy.reference_refresh_every;
  if (every === null) return reference;
  if (!isRefreshable(reference)) throw new Error('a reference behind an endpoint cannot be refreshed');
  return new RefreshedReference(reference, actor, run, every);
}

async function firstCheckpoint(
  run: RunFolder,
  { training }: RunSettings,
  policy: Pick<Policy, 'save'>,
  state: TrainerState,
): Promise<void> {
  const { checkpoint_dtype, keep_checkpoints } = training;
  await saveCheckpoint(run, state, folder => policy.save(folder, checkpoint_dtype), keep_checkpoints);
}

/** The work's result; undefined when it failed because the run is to stop. */
async function unlessStopped<T>(stop: AbortSignal, work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (stop.aborted) return undefined;
    throw error;
  }
}

/** Hashes of the validation levels, from their first states: no action is taken. */
async function surveyLevels({ settings, context, progress, stop }: RunStart): Promise<string[]> {
  const player = agentRollouts(context, observer, progress.warn);
  const hashes = new Set<string>();
  for (const plan of [validationPlan(settings), ...validationSets(settings).map(set => set.plan)]) {
    const { episodes } = await playValidation(player, plan, stop);
    for (const episode of episodes) hashes.add(levelHash(episode));
  }
  return [...hashes];
}

import { EarlyStopping, type EarlyStopType } from '../algorithms/filters/early-stopping.ts';
import { type MonitorSettings, monitorMetric } from '../algorithms/filters/metric-monitor.ts';
import { mean } from '../algorithms/statistics.ts';
import { ServerUnavailable } from '../client/retry.ts';
import { earlyStoppingSettings, monitorSettings } from '../config/derived.ts';
import type { RunSettings } from '../config/settings.ts';
import type { Metrics } from '../data/episode-metrics.ts';
import { LearningWatch } from '../diagnostics/learning-watch.ts';
import type { Policy } from '../policy/policy.ts';
import { readJsonLines } from '../tracking/jsonlines.ts';
import { type Progress, shownCount, shownDuration, shownShare } from '../tracking/progress.ts';
import type { Tracker } from '../tracking/tracker.ts';
import { TrajectoryWriter } from '../tracking/trajectories.ts';
import { type IterationParts, runIteration } from './iteration/iteration.ts';
import { saveBestCheckpoint, saveCheckpoint, type TrainerState } from './run-folder/checkpoint.ts';
import type { RunCommands } from './run-folder/run-control.ts';
import { refreshReference } from './setup/open-policy.ts';
import {
  type EpisodeSource,
  PlannedSource,
  type Rollouts,
  type SourcePosition,
} from './sources/episode-source.ts';
import {
  generationsTable,
  playValidation,
  validationMetrics,
  validationPlan,
  validationSets,
} from './validation.ts';

/** Validation episodes kept as samples. */
const KEPT_VALIDATION_EPISODES = 20;
/** Iterations that displayed numbers are averaged over. */
const SHOWN_WINDOW = 5;

/** Why a run ended before its last step without being asked to. */
export type StopReason =
  | EarlyStopType
  | 'plateau'
  | 'target'
  | 'time_limit'
  | 'stop_after'
  | 'max_env_steps'
  | 'max_sampled_tokens';

export interface LoopParts extends Omit<IterationParts, 'policy' | 'clock' | 'source' | 'trajectories'> {
  readonly policy: IterationParts['policy'] & Pick<Policy, 'save' | 'publish' | 'withAverage'>;
  readonly rollouts: Rollouts;
  /** Opens the source of episodes; absent: `rollouts` play them on demand. */
  readonly openSource?: (start: SourcePosition) => EpisodeSource;
  readonly stop: AbortSignal;
  /** Commands to the trainer during training; none when absent. */
  readonly commands?: RunCommands;
  readonly tracker: Tracker;
  readonly progress: Progress;
  /** Seconds on a monotonic clock. */
  readonly clock?: () => number;
}

export interface LoopOutcome {
  readonly state: TrainerState;
  /**
   * `stopped` if the run was asked to stop; a type of early stopping if it could no longer learn, or reached its
   * target.
   */
  readonly ended: 'finished' | 'stopped' | StopReason;
  /** Warnings that it learns nothing, with what to change. */
  readonly warnings?: readonly string[];
}

/**
 * Trains from the given state to the last step: collect, learn, log, validate, checkpoint. Ends with a checkpoint, also
 * when `stop` is aborted.
 */
export function trainLoop(parts: LoopParts, start: TrainerState): Promise<LoopOutcome> {
  return new TrainingLoop(parts, start).run();
}

class TrainingLoop {
  readonly #parts: LoopParts;
  readonly #clock: () => number;
  readonly #start: TrainerState;
  readonly #startedAt: number;
  readonly #watch: EarlyStopping;
  readonly #learning: LearningWatch;
  readonly #monitor: MonitorSettings | undefined;
  readonly #validationLevels: ReadonlySet<string>;
  readonly #recent: Metrics[] = [];
  readonly #source: EpisodeSource;
  readonly #trajectories: TrajectoryWriter;
  #state: TrainerState;
  /** State in the last checkpoint. */
  #saved: TrainerState | undefined;

  constructor(parts: LoopParts, start: TrainerState) {
    this.#parts = parts;
    this.#clock = parts.clock ?? (() => performance.now() / 1000);
    this.#start = start;
    this.#startedAt = this.#clock();
    this.#state = start;
    this.#saved = start;
    this.#watch = new EarlyStopping(earlyStoppingSettings(parts.settings), start.watch);
    const earlier = start.step > 0 ? readJsonLines(parts.run.metrics) : [];
    this.#learning = new LearningWatch(parts.settings, earlier as Metrics[]);
    this.#monitor = monitorSettings(parts.settings);
    this.#validationLevels = new Set(start.validationLevels);
    const { settings, rollouts, stop, run, decode } = parts;
    this.#trajectories = new TrajectoryWriter(run, decode);
    this.#source = parts.openSource?.(start) ?? new PlannedSource(settings, rollouts, start, stop);
  }

  async run(): Promise<LoopOutcome> {
    const { settings, progress, stop } = this.#parts;
    const { steps } = settings.training;
    progress.begin('training', steps, this.#state.step);
    const early = await this.#kept(this.#untilEnd().finally(() => this.#source.close()));
    progress.end();
    if (this.#saved !== this.#state) await this.#save();
    const stopped = stop.aborted && this.#state.step < steps;
    const warnings = this.#learning.said;
    return { state: this.#state, ended: early ?? (stopped ? 'stopped' : 'finished'), warnings };
  }

  /** The work's result. Environments that stay away end it before anything is learned from the next step: a checkpoint keeps the last. */
  async #kept<T>(work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      if (error instanceof ServerUnavailable && this.#saved !== this.#state) await this.#save();
      throw error;
    }
  }

  /** Runs steps until the last one, a stop request, or an early stop. */
  async #untilEnd(): Promise<StopReason | null> {
    const { stop, settings } = this.#parts;
    while (!stop.aborted) {
      const limit = this.#limitReached();
      if (this.#validationDue(limit !== null)) {
        const early = await this.#unlessStopped(() => this.#validate());
        if (early === undefined) return null;
        if (early) return early;
      }
      await this.#saveWhereDue();
      if (this.#state.step >= settings.training.steps) return null;
      if (limit) return limit;
      const early = await this.#unlessStopped(() => this.#iterate());
      if (early) return early;
    }
    return null;
  }

  /** The work's result; undefined if the stop signal ended it. */
  async #unlessStopped<T>(work: () => Promise<T>): Promise<T | undefined> {
    const { stop } = this.#parts;
    try {
      return await work();
    } catch (error) {
      if (stop.aborted && (error === stop.reason || (error as Error).name === 'AbortError')) return undefined;
      throw error;
    }
  }

  #limitReached(): StopReason | null {
    const { max_seconds, stop_after, max_env_steps, max_sampled_tokens } = this.#training;
    const { envSteps = 0, usedTokens = 0 } = this.#state;
    if (stop_after !== null && this.#state.step >= stop_after) return 'stop_after';
    if (max_env_steps !== null && envSteps >= max_env_steps) return 'max_env_steps';
    if (max_sampled_tokens !== null && usedTokens >= max_sampled_tokens) return 'max_sampled_tokens';
    return max_seconds !== null && this.#elapsed() >= max_seconds ? 'time_limit' : null;
  }

  /** @param isLast this validation ends the run */
  #validationDue(isLast: boolean): boolean {
    const { validate_every, validate_first, steps } = this.#training;
    const { step, validations } = this.#state;
    if (validationPlan(this.#parts.settings).tags.length === 0) return false;
    if (validations.at(-1)?.step === step) return false;
    if (isLast) return true;
    return step === 0 ? validate_first : step % validate_every === 0 || step === steps;
  }

  /** Settings of the training, with requested changes. */
  get #training(): RunSettings['training'] {
    const { settings, commands } = this.#parts;
    return { ...settings.training, ...commands?.schedule };
  }

  async #saveWhereDue(): Promise<void> {
    const { commands, progress } = this.#parts;
    const isAsked = commands?.takeCheckpointRequest() ?? false;
    if (this.#checkpointDue() || (isAsked && this.#saved !== this.#state)) await this.#save();
    if (isAsked) progress.note(`the checkpoint of step ${this.#state.step} is saved`);
  }

  #checkpointDue(): boolean {
    const { checkpoint_every, steps } = this.#training;
    const { step } = this.#state;
    return step !== this.#saved?.step && (step % checkpoint_every === 0 || step === steps);
  }

  /** Validates with the weights that the settings name: the learning ones, or their average. */
  #validate(): Promise<StopReason | null> {
    const { settings, policy } = this.#parts;
    if (!settings.optimizer.ema?.validate) return this.#measure();
    if (!policy.withAverage) throw new Error('the policy does not average its weights');
    return policy.withAverage(() => this.#measure());
  }

  async #measure(): Promise<StopReason | null> {
    const { settings, progress, rollouts, stop, tracker, run, policy, ends } = this.#parts;
    const { step } = this.#state;
    const seconds = this.#elapsed();
    const plan = { ...validationPlan(settings), recorded: KEPT_VALIDATION_EPISODES };
    const { episodes: count } = settings.validation;
    progress.begin('validating', count, 0);
    const { episodes } = await playValidation(rollouts, plan, stop);
    const { response_length } = settings.rollout;
    let metrics = validationMetrics(episodes, response_length, { ends });
    for (const { name, plan } of validationSets(settings)) {
      const played = await playValidation(rollouts, plan, stop);
      metrics = { ...metrics, ...validationMetrics(played.episodes, response_length, { set: name, ends }) };
    }
    progress.update(count, {
      success: shownShare(metrics['val-env/success']),
      return: metrics['val-env/return'].toFixed(2),
    });
    progress.end();
    const samples = episodes.slice(0, KEPT_VALIDATION_EPISODES);
    this.#trajectories.write('validation', step, samples);
    tracker.writeTable(step, 'val/generations', generationsTable(samples));
    const successes = plan.tags.map(({ tag }) => metrics[`val-env/${tag}/success`]);
    const low = this.#watch.afterValidation(successes, metrics['val-env/return']);
    const verdict = this.#monitor && monitorMetric(this.#monitor, this.#state.monitor, step, metrics);
    const early = verdict?.stop ?? low;
    tracker.write(step, { ...metrics, ...earlyMetric(early), 'timing_s/testing': this.#elapsed() - seconds });
    this.#state = {
      ...this.#state,
      validations: [...this.#state.validations, { step, seconds, metrics }],
      watch: this.#watch.state,
      ...(verdict ? { monitor: verdict.state } : {}),
    };
    if (verdict?.isBest && settings.training.keep_best) {
      await saveBestCheckpoint(run, { ...this.#state, seconds: this.#elapsed() }, folder =>
        policy.save(folder, settings.training.checkpoint_dtype),
      );
    }
    progress.begin('training', settings.training.steps, step);
    return early;
  }

  async #iterate(): Promise<StopReason | null> {
    const { tracker } = this.#parts;
    const parts = {
      ...this.#parts,
      source: this.#source,
      clock: this.#clock,
      trajectories: this.#trajectories,
    };
    const done = await runIteration(parts, this.#state, this.#validationLevels);
    await refreshReference(this.#parts, done.state.step);
    const early = this.#watch.afterCollection(done.keptGroups, done.groupStd);
    const seconds = this.#elapsed();
    this.#state = { ...done.state, seconds, watch: this.#watch.state };
    tracker.write(this.#state.step, {
      ...done.metrics,
      ...earlyMetric(early),
      'training/episodes': this.#state.episodes,
      'training/env_steps': this.#state.envSteps ?? 0,
      'training/sampled_tokens': this.#state.usedTokens ?? 0,
      'training/seconds': seconds,
    });
    for (const [name, table] of Object.entries(done.tables)) {
      tracker.writeTable(this.#state.step, name, table);
    }
    const slow = this.#learning.after(done.metrics, done.returns);
    for (const alarm of [...done.alarms, ...slow]) this.#parts.progress.warn(alarm);
    this.#show(done.metrics);
    return early;
  }

  #show(metrics: Metrics): void {
    const { progress, settings } = this.#parts;
    const { step } = this.#state;
    this.#recent.push(metrics);
    if (this.#recent.length > SHOWN_WINDOW) this.#recent.shift();
    const recent = (name: string) => mean(this.#recent.map(row => row[name]));
    const secondsPerStep = (this.#clock() - this.#startedAt) / (step - this.#start.step);
    progress.update(step, {
      left: shownDuration(secondsPerStep * (settings.training.steps - step)),
      success: shownShare(recent('train/success')),
      return: recent('train/return').toFixed(2),
      'tokens/s': shownCount(recent('perf/tokens_per_second')),
    });
  }

  async #save(): Promise<void> {
    const { run, policy, settings, tracker } = this.#parts;
    const before = this.#clock();
    this.#state = { ...this.#state, seconds: this.#elapsed() };
    const { checkpoint_dtype, keep_checkpoints } = settings.training;
    await saveCheckpoint(run, this.#state, folder => policy.save(folder, checkpoint_dtype), keep_checkpoints);
    this.#saved = this.#state;
    tracker.write(this.#state.step, { 'timing_s/save_checkpoint': this.#clock() - before });
  }

  /** Seconds of the run so far, over all its sessions. */
  #elapsed(): number {
    return this.#start.seconds + this.#clock() - this.#startedAt;
  }
}

function earlyMetric(early: StopReason | null): Metrics {
  return early ? { [`early_stopped/${early}`]: 1 } : {};
}

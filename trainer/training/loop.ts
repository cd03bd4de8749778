import type { Policy } from '../policy/policy.ts';
import { type Progress, shownCount, shownDuration, shownShare } from '../tracking/progress.ts';
import type { Tracker } from '../tracking/tracker.ts';
import { writeTrajectories } from '../tracking/trajectories.ts';
import { saveCheckpoint, type TrainerState } from './checkpoint.ts';
import { type EarlyStop, watchIteration, watchValidation } from './early-stopping.ts';
import type { Metrics } from './episode-metrics.ts';
import { type IterationParts, runIteration } from './iteration.ts';
import type { RunSettings } from './settings.ts';
import { mean } from './statistics.ts';
import { levelHash, playValidation, validationMetrics } from './validation.ts';

/** Validation episodes kept as samples. */
const KEPT_VALIDATION_EPISODES = 20;
/** Iterations that the shown success is averaged over. */
const SHOWN_WINDOW = 5;

export interface LoopParts extends Omit<IterationParts, 'policy' | 'clock'> {
  readonly policy: Pick<Policy, 'update' | 'save'>;
  readonly tracker: Tracker;
  readonly progress: Progress;
  /** Seconds on a clock that only rises. */
  readonly clock?: () => number;
}

export interface LoopOutcome {
  readonly state: TrainerState;
  readonly ended: 'finished' | 'stopped' | EarlyStop;
}

/**
 * Trains from the given state to the last step: collect, learn, log, validate, checkpoint. Ends with a checkpoint
 * whenever it ends by itself or by `stop`.
 */
export async function trainLoop(parts: LoopParts, start: TrainerState): Promise<LoopOutcome> {
  const { settings, run, policy, progress, stop } = parts;
  const { training } = settings;
  const clock = parts.clock ?? (() => performance.now() / 1000);
  const startedAt = clock();
  const elapsed = () => start.seconds + clock() - startedAt;
  let state = start;
  let ended: LoopOutcome['ended'] = 'finished';
  let saved = state.step > 0 ? state.step : -1;
  const levels = new Set(state.validationLevels);
  const recent: Metrics[] = [];

  const save = async () => {
    const before = clock();
    await saveCheckpoint(run, state, folder => policy.save(folder), training.keep_checkpoints);
    saved = state.step;
    parts.tracker.write(state.step, { 'timing_s/save_checkpoint': clock() - before });
  };
  const showTraining = () => progress.begin('training', training.steps, state.step);

  showTraining();
  while (!stop.aborted) {
    if (validationDue(state, settings)) {
      const validated = await unlessStopped(stop, () => validate(parts, state, elapsed));
      if (!validated) break;
      state = { ...state, validations: [...state.validations, validated.record] };
      if (settings.validation.unseen_levels && levels.size === 0) {
        for (const episode of validated.episodes) levels.add(levelHash(episode));
        state = { ...state, validationLevels: [...levels] };
      }
      const verdict = watchValidation(
        state.watch,
        training.early_stopping,
        validated.record.metrics['val-env/success'],
      );
      state = { ...state, watch: verdict.watch };
      showTraining();
      if (verdict.stop) {
        ended = verdict.stop;
        break;
      }
    }
    if (
      state.step !== saved &&
      (state.step % training.checkpoint_every === 0 || state.step >= training.steps)
    ) {
      await save();
    }
    if (state.step >= training.steps) break;
    const done = await unlessStopped(stop, () => runIteration({ ...parts, clock }, state, levels));
    if (!done) break;
    const seconds = elapsed();
    const groupStd = settings.rollout.group_size > 1 ? done.metrics['rollout/in_group_std'] : undefined;
    const verdict = watchIteration(state.watch, training.early_stopping, done.kept, groupStd);
    state = { ...done.state, seconds, watch: verdict.watch };
    parts.tracker.write(state.step, {
      ...done.metrics,
      'training/episodes': state.episodes,
      'training/seconds': seconds,
      ...(verdict.stop ? { [`early_stopped/${verdict.stop.type}`]: 1 } : {}),
    });
    recent.push(done.metrics);
    if (recent.length > SHOWN_WINDOW) recent.shift();
    const perStep = (clock() - startedAt) / (state.step - start.step);
    progress.update(state.step, {
      success: shownShare(mean(recent.map(row => row['train/success']))),
      return: mean(recent.map(row => row['train/return'])).toFixed(2),
      'tokens/s': shownCount(mean(recent.map(row => row['perf/tokens_per_second']))),
      left: shownDuration(perStep * (training.steps - state.step)),
    });
    if (verdict.stop) {
      ended = verdict.stop;
      break;
    }
  }
  progress.end();
  if (stop.aborted && state.step < training.steps) ended = 'stopped';
  await save();
  return { state, ended };
}

function validationDue(state: TrainerState, settings: RunSettings): boolean {
  const { validate_every, validate_first, steps } = settings.training;
  if (state.validations.at(-1)?.step === state.step) return false;
  if (state.step === 0) return validate_first;
  return state.step % validate_every === 0 || state.step === steps;
}

/** Runs the work; undefined when it was given up because of the signal. */
async function unlessStopped<T>(stop: AbortSignal, work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (stop.aborted && (error === stop.reason || (error as Error).name === 'AbortError')) return undefined;
    throw error;
  }
}

async function validate(parts: LoopParts, state: TrainerState, elapsed: () => number) {
  const { settings, progress } = parts;
  const { validation } = settings;
  const before = elapsed();
  progress.begin('validating', validation.episodes, 0);
  const { episodes } = await playValidation(
    parts.rollouts,
    {
      tags: validation.tags ?? settings.train_tags,
      episodes: validation.episodes,
      seed: validation.seed,
      temperature: validation.temperature,
      topK: validation.top_k,
      topP: validation.top_p,
      responseLength: settings.rollout.response_length,
    },
    parts.stop,
    finished => progress.update(finished, {}),
  );
  const metrics = validationMetrics(episodes, settings.rollout.response_length);
  progress.update(validation.episodes, { success: shownShare(metrics['val-env/success']) });
  progress.end();
  writeTrajectories(
    parts.run.trajectories,
    'validation',
    state.step,
    episodes.slice(0, KEPT_VALIDATION_EPISODES),
  );
  parts.tracker.write(state.step, { ...metrics, 'timing_s/testing': elapsed() - before });
  return { episodes, record: { step: state.step, seconds: before, metrics } };
}

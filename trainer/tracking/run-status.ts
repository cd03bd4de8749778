import { hostname } from 'node:os';
import { isDeepStrictEqual } from 'node:util';
import { isObject, type JsonObject } from '../../shared/json.ts';
import { replaceFileSync } from '../../shared/replace-file.ts';
import { processStart } from '../../shared/run-folder/is-alive.ts';
import {
  type EndMeanings,
  HEARTBEAT_S,
  type RunDescription,
  type RunNote,
  type RunState,
  type RunStatus,
  type ValidationPoint,
} from '../../shared/run-folder/run-files.ts';
import { RunSettings } from '../config/settings.ts';
import { modelOfSnapshot, shownModelName } from '../hub/cache.ts';
import { both, type Progress } from './progress.ts';
import type { MetricSink } from './tracker.ts';

/** Shortest time between two writes that only report progress. */
const MIN_INTERVAL_MS = 1000;
const KEPT_NOTES = 50;
/** Most validations in the status; a longer run lists every second, fourth … and the last. */
const KEPT_VALIDATIONS = 64;
const TRAINING = 'training';

/** A model's folder, or its name if the folder is in a hub's cache. */
function modelName(folder: string): string {
  const onHub = modelOfSnapshot(folder);
  return onHub === undefined ? folder : shownModelName(onHub);
}

/** Description of a run, for a table of runs. */
export function describeRun(settings: RunSettings): RunDescription {
  const { algorithm, policy, recipe, run, seed, tags } = settings;
  const names = new Set([...settings.train_tags, ...(settings.validation.tags ?? [])]);
  return {
    name: run.name ?? '',
    recipe,
    advantage: algorithm.advantage,
    seed,
    model: modelName(policy.init),
    parameters: null,
    changed: changedSettings(settings),
    tags: [...names].map(tag => ({
      tag,
      env_id: tags[tag].env_id,
      config: tags[tag].config as JsonObject,
      random: tags[tag].random_success,
      optimum: tags[tag].optimum_success,
    })),
  };
}

/**
 * Keeps `status.json` of a run folder: written when a stage begins or ends, at most once a second in between, and every
 * {@link HEARTBEAT_S} seconds as a sign of life. A failed write only causes a note.
 */
export class RunStatusFile {
  readonly #file: string;
  readonly #progress: Progress;
  readonly #now: () => number;
  readonly #heartbeat: NodeJS.Timeout;
  #status: RunStatus;
  #written = Number.NEGATIVE_INFINITY;
  /** Start of the stage: finished units and time. */
  #stageStart = { done: 0, at: 0 };
  #refused = false;

  /**
   * @param progress receives all calls of {@link progress}
   * @param validations of earlier sessions of the run
   * @param now milliseconds since the epoch
   */
  constructor(
    file: string,
    settings: RunSettings,
    progress: Progress,
    validations: readonly ValidationPoint[] = [],
    now: () => number = Date.now,
  ) {
    this.#file = file;
    this.#progress = progress;
    this.#now = now;
    const time = this.#time();
    this.#status = {
      format: 1,
      state: 'running',
      stage: 'starting',
      done: 0,
      total: 0,
      step: 0,
      steps: settings.training.steps,
      eta_s: null,
      pid: process.pid,
      pid_start: processStart(process.pid),
      host: hostname(),
      started_at: time,
      updated_at: time,
      seconds: 0,
      last_error: null,
      notes: [],
      run: describeRun(settings),
      validations,
    };
    this.#write();
    this.#heartbeat = setInterval(() => this.#write(), HEARTBEAT_S * 1000).unref();
  }

  /** Time at which this session of the run began. */
  get startedAt(): string {
    return this.#status.started_at;
  }

  /** Shows progress and keeps it. */
  get progress(): Progress {
    const keep = (text: string) =>
      this.#change({ notes: [...this.#status.notes, this.#note(text)].slice(-KEPT_NOTES) });
    return both(this.#progress, {
      begin: (stage, total, done) => {
        this.#stageStart = { done, at: this.#now() };
        this.#change({ stage, total, done, eta_s: null, ...(stage === TRAINING ? { step: done } : {}) });
      },
      update: done => this.#update(done),
      end() {},
      note: keep,
      warn: keep,
    });
  }

  /** Reads the validations and the training time from the rows of a run. */
  get sink(): MetricSink {
    return { write: (step, metrics) => this.#takeRow(step, metrics), close: async () => {} };
  }

  /** Weights of the policy, once it is open. */
  opened(parameters: number): void {
    this.#change({ run: { ...this.#status.run, parameters } });
  }

  /** Ends of the environments, once those are described. */
  described(ends: EndMeanings): void {
    this.#change({ run: { ...this.#status.run, ends } });
  }

  /** The run's last write. */
  end(state: Exclude<RunState, 'running'>, error?: Error): void {
    clearInterval(this.#heartbeat);
    this.#change({
      state,
      stage: 'done',
      eta_s: null,
      ...(error ? { last_error: this.#note(error.message) } : {}),
    });
  }

  #update(done: number): void {
    const { stage, total } = this.#status;
    const passed = done - this.#stageStart.done;
    const seconds = (this.#now() - this.#stageStart.at) / 1000;
    const training = stage === TRAINING;
    this.#status = {
      ...this.#status,
      done,
      ...(training ? { step: done } : {}),
      eta_s: training && passed > 0 ? Math.round((seconds / passed) * (total - done)) : null,
    };
    if (this.#now() - this.#written >= MIN_INTERVAL_MS) this.#write();
  }

  #takeRow(step: number, metrics: { readonly [name: string]: number }): void {
    const seconds = metrics['training/seconds'];
    if (seconds !== undefined) this.#status = { ...this.#status, seconds: Math.round(seconds) };
    const point = validationPoint(step, metrics, this.#status.run);
    if (!point) return;
    const before = this.#status.validations.filter(other => other.step < step);
    this.#change({ validations: thinnedOut([...before, point]) });
  }

  #note(text: string): RunNote {
    return { time: this.#time(), text };
  }

  #time(): string {
    return new Date(this.#now()).toISOString();
  }

  #change(part: Partial<RunStatus>): void {
    this.#status = { ...this.#status, ...part };
    this.#write();
  }

  #write(): void {
    this.#written = this.#now();
    this.#status = { ...this.#status, updated_at: this.#time() };
    try {
      replaceFileSync(this.#file, `${JSON.stringify(this.#status)}\n`);
      this.#refused = false;
    } catch (error) {
      if (this.#refused) return;
      this.#refused = true;
      this.#progress.warn(`${this.#file} cannot be written: ${(error as Error).message}; the run continues`);
    }
  }
}

/** A row of metrics as a validation, where it is one; with the interval where only one tag is validated. */
export function validationPoint(
  step: number,
  metrics: { readonly [name: string]: number },
  { tags }: Pick<RunDescription, 'tags'>,
): ValidationPoint | undefined {
  const success = metrics['val-env/success'];
  if (success === undefined) return undefined;
  const [tag, ...others] = tags.filter(({ tag }) => `val-env/${tag}/success_low` in metrics);
  if (!tag || others.length > 0) return { step, success };
  const of = (name: string) => metrics[`val-env/${tag.tag}/${name}`];
  return { step, success, low: of('success_low'), high: of('success_high') };
}

function thinnedOut(points: readonly ValidationPoint[]): readonly ValidationPoint[] {
  if (points.length <= KEPT_VALIDATIONS) return points;
  return points.filter((_, i) => i % 2 === 0 || i === points.length - 1);
}

/** The part of a JSON schema that names defaults. */
interface Schema {
  readonly default?: unknown;
  readonly properties?: { readonly [name: string]: Schema };
}

/** Sections that every run describes itself. */
const DESCRIBED = new Set(['servers', 'tags']);

/** Settings that differ from the schema's defaults, as `section.key`, including those without a default. */
export function changedSettings(settings: RunSettings): string[] {
  const others = Object.entries(settings).filter(([name]) => !DESCRIBED.has(name));
  return changesIn(RunSettings as Schema, Object.fromEntries(others));
}

function changesIn({ default: usual, properties }: Schema, value: unknown, key = ''): string[] {
  if (!properties || !isObject(value)) return isDeepStrictEqual(value, usual) ? [] : [key];
  return Object.entries(value).flatMap(([name, inner]) =>
    changesIn(properties[name] ?? {}, inner, key === '' ? name : `${key}.${name}`),
  );
}

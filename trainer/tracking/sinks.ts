import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { HttpError, JsonClient } from '../../shared/http/json-client.ts';
import { backoffMs, retry } from '../../shared/http/retry.ts';
import { type Json, parseJson } from '../../shared/json.ts';
import { secretOf } from '../config/secret.ts';
import type { RunSettings } from '../config/settings.ts';
import type { MetricSink, OpenSink } from './tracker.ts';
import { type TrackedRun, WandbRun } from './wandb/wandb.ts';

/**
 * The sinks of a run besides its own files: Weights & Biases and MLflow, if the settings name them. They receive the
 * settings without the servers' tokens.
 * @param folder of the run
 * @param note called when a sink fails, which never ends the run
 * @throws Error when the environment variable of a key is not set
 */
export function configuredSinks(
  folder: string,
  settings: RunSettings,
  note: (text: string) => void,
): OpenSink[] {
  const { wandb, mlflow } = settings.tracking;
  const name = settings.run.name ?? folder;
  const shown = { ...settings, servers: settings.servers.map(server => ({ ...server, token: null })) };
  const tracked = { name, config: shown as unknown as { readonly [key: string]: Json } };
  const sinks: OpenSink[] = [];
  if (wandb) sinks.push(rows => new WandbRun(join(folder, 'wandb'), wandb, tracked, rows));
  if (mlflow) {
    const { url, experiment, token_env } = mlflow;
    const token = secretOf('tracking.mlflow.token_env', token_env);
    const server = { url, experiment, token };
    sinks.push(() => new MlflowRun(server, tracked, join(folder, 'mlflow.json'), note));
  }
  return sinks;
}

interface MlflowSettings {
  /** Address of the tracking server, e.g. `http://127.0.0.1:5000`. */
  readonly url: string;
  readonly experiment: string;
  /** Sent as bearer token. */
  readonly token?: string;
}

const API = '/api/2.0/mlflow';
/** Limits of the REST interface for one request and one value. */
const MAX_METRICS = 1000;
const MAX_PARAMETERS = 100;
const MAX_VALUE_LENGTH = 500;
const MAX_KEY_LENGTH = 250;
const DEFAULT_ATTEMPTS = 5;
const BACKOFF = { firstMs: 250 };
/** Longest silence of the server. */
const TIMEOUT_MS = 300_000;
const MISSING = 'RESOURCE_DOES_NOT_EXIST';

interface Metric {
  readonly key: string;
  readonly value: number | string;
  readonly timestamp: number;
  readonly step: number;
}

/**
 * Sends rows to an MLflow tracking server by its REST interface. Rows wait in a queue while others are in progress. If
 * the server fails, only these rows are lost, and the failure is reported once. A resumed run continues under its
 * MLflow id.
 */
export class MlflowRun implements MetricSink {
  readonly #http: JsonClient;
  readonly #experimentName: string;
  readonly #run: TrackedRun;
  /** Keeps the run's id. */
  readonly #idFile: string;
  readonly #note: (text: string) => void;
  readonly #attempts: number;
  #waiting: Metric[] = [];
  #id: string | undefined;
  #work: Promise<void> | undefined;
  #lost = 0;

  constructor(
    settings: MlflowSettings,
    run: TrackedRun,
    idFile: string,
    note: (text: string) => void,
    attempts = DEFAULT_ATTEMPTS,
  ) {
    this.#http = new JsonClient({ ...settings, timeoutMs: TIMEOUT_MS });
    this.#experimentName = settings.experiment;
    this.#run = run;
    this.#idFile = idFile;
    this.#note = note;
    this.#attempts = attempts;
  }

  write(step: number, metrics: { readonly [name: string]: number }): void {
    const timestamp = Date.now();
    for (const [name, value] of Object.entries(metrics)) {
      const shown = Number.isFinite(value) ? value : String(value);
      this.#waiting.push({ key: keyOf(name), value: shown, timestamp, step });
    }
    this.#work ??= this.#send().finally(() => {
      this.#work = undefined;
    });
  }

  /** Sends the waiting rows and ends the run on the server. */
  async close(): Promise<void> {
    while (this.#work) await this.#work;
    if (this.#id !== undefined) {
      await this.#tolerating(0, () => this.#post('runs/update', this.#update('FINISHED', Date.now())));
    }
    await this.#http.close();
    if (this.#lost > 0) this.#note(`${this.#lost} numbers did not reach MLflow; metrics.jsonl has them all`);
  }

  async #send(): Promise<void> {
    while (this.#waiting.length > 0) {
      const metrics = this.#waiting.splice(0, MAX_METRICS);
      await this.#tolerating(metrics.length, async () => {
        this.#id ??= await this.#open();
        await this.#post('runs/log-batch', { run_id: this.#id, metrics });
      });
    }
  }

  /** Does the work; a failure loses this many numbers. */
  async #tolerating(numbers: number, work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (this.#lost === 0) this.#note(`MLflow: ${(error as Error).message}; the run continues without it`);
      this.#lost += numbers;
    }
  }

  async #open(): Promise<string> {
    if (existsSync(this.#idFile)) {
      const { run_id } = JSON.parse(readFileSync(this.#idFile, 'utf8')) as { readonly run_id: string };
      await this.#post('runs/update', { ...this.#update('RUNNING'), run_id });
      return run_id;
    }
    const created = (await this.#post('runs/create', {
      experiment_id: await this.#experiment(),
      run_name: this.#run.name,
      start_time: Date.now(),
    })) as { readonly run: { readonly info: { readonly run_id: string } } };
    const { run_id } = created.run.info;
    const params = parameters(this.#run.config);
    for (let at = 0; at < params.length; at += MAX_PARAMETERS) {
      await this.#post('runs/log-batch', { run_id, params: params.slice(at, at + MAX_PARAMETERS) });
    }
    writeFileSync(this.#idFile, `${JSON.stringify({ run_id })}\n`);
    return run_id;
  }

  async #experiment(): Promise<string> {
    const name = this.#experimentName;
    try {
      const path = `experiments/get-by-name?experiment_name=${encodeURIComponent(name)}`;
      const found = (await this.#exchange('GET', path)) as {
        readonly experiment: { readonly experiment_id: string };
      };
      return found.experiment.experiment_id;
    } catch (error) {
      if (
        !(error instanceof HttpError) ||
        (parseJson(error.text) as { readonly error_code?: string } | null | undefined)?.error_code !== MISSING
      )
        throw error;
      const made = (await this.#post('experiments/create', { name })) as {
        readonly experiment_id: string;
      };
      return made.experiment_id;
    }
  }

  #update(status: 'RUNNING' | 'FINISHED', end?: number) {
    return { run_id: this.#id, status, ...(end === undefined ? {} : { end_time: end }) };
  }

  #post(path: string, body: object): Promise<unknown> {
    return this.#exchange('POST', path, body);
  }

  async #exchange(method: 'GET' | 'POST', path: string, body?: object): Promise<unknown> {
    const text = await retry(
      () => this.#http.send(`${API}/${path}`, { method, body }),
      (error, attempt) => {
        if (!(error instanceof HttpError && error.passing) || attempt >= this.#attempts) throw error;
        return Math.max(error.retryAfterMs, backoffMs(BACKOFF, attempt));
      },
    );
    return text === '' ? {} : JSON.parse(text);
  }
}

/** MLflow's names hold letters, digits, and `_ - . : / ` and blanks: `pass@4` becomes `pass_at_4`. */
function keyOf(name: string): string {
  return name
    .replaceAll('@', '_at_')
    .replace(/[^\w\-.:/ ]/g, '_')
    .slice(0, MAX_KEY_LENGTH);
}

/** The settings as `section.key`, with values as JSON, shortened to MLflow's limit. */
function parameters(config: { readonly [key: string]: Json }, prefix = ''): { key: string; value: string }[] {
  return Object.entries(config).flatMap(([name, value]) => {
    const key = keyOf(prefix + name);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      return parameters(value as { readonly [key: string]: Json }, `${key}.`);
    }
    return [
      { key, value: (typeof value === 'string' ? value : JSON.stringify(value)).slice(0, MAX_VALUE_LENGTH) },
    ];
  });
}

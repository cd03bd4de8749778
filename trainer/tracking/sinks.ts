import { randomBytes } from 'node:crypto';
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import protobuf from 'protobufjs';
import { HttpError, JsonClient } from '../../shared/http/json-client.ts';
import { backoffMs, retry } from '../../shared/http/retry.ts';
import { isObject, type Json, parseJson } from '../../shared/json.ts';
import { secretOf } from '../config/derived.ts';
import type { RunSettings } from '../config/settings.ts';
import type { MetricSink, OpenSink } from './tracker.ts';

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
  #waiting: object[] = [];
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
    if (isObject(value)) return parameters(value, `${key}.`);
    return [
      { key, value: (typeof value === 'string' ? value : JSON.stringify(value)).slice(0, MAX_VALUE_LENGTH) },
    ];
  });
}

const BLOCK_BYTES = 32_768;
/** Checksum, length and type before the bytes of a piece. */
const PIECE_HEADER_BYTES = 7;
const FULL = 1;
const FIRST = 2;
const MIDDLE = 3;
const LAST = 4;

/**
 * Appends records to a file in LevelDB's log format (https://github.com/google/leveldb, doc/log_format.md) with the CRC-32
 * that Weights & Biases takes: blocks of 32 KiB, and records cut where one ends.
 */
class LevelDbLog {
  readonly #file: string;
  #written: number;

  /** @param header precedes the records and counts in the first block */
  constructor(file: string, header: Uint8Array) {
    this.#file = file;
    appendFileSync(file, header);
    this.#written = header.length;
  }

  append(record: Uint8Array): void {
    const pieces: Uint8Array[] = [];
    let start = 0;
    do {
      let room = BLOCK_BYTES - (this.#written % BLOCK_BYTES);
      if (room < PIECE_HEADER_BYTES) {
        pieces.push(new Uint8Array(room));
        this.#written += room;
        room = BLOCK_BYTES;
      }
      const end = Math.min(record.length, start + room - PIECE_HEADER_BYTES);
      pieces.push(piece(record.subarray(start, end), typeOf(start === 0, end === record.length)));
      this.#written += PIECE_HEADER_BYTES + end - start;
      start = end;
    } while (start < record.length);
    appendFileSync(this.#file, Buffer.concat(pieces));
  }
}

function typeOf(first: boolean, last: boolean): number {
  if (first) return last ? FULL : FIRST;
  return last ? LAST : MIDDLE;
}

function piece(bytes: Uint8Array, type: number): Uint8Array {
  const header = Buffer.alloc(PIECE_HEADER_BYTES);
  header.writeUInt16LE(bytes.length, 4);
  header[6] = type;
  header.writeUInt32LE(crc32(bytes, crc32(header.subarray(6))), 0);
  return Buffer.concat([header, bytes]);
}

type WandbSettings = NonNullable<RunSettings['tracking']['wandb']>;

/** A run's facts besides its numbers. */
export interface TrackedRun {
  readonly name: string;
  readonly config: { readonly [key: string]: Json };
}

/** `:W&B`, 0xBEE1, version 0. */
const HEADER = Uint8Array.of(0x3a, 0x57, 0x26, 0x42, 0xe1, 0xbe, 0);
const RUN_ID_FILE = 'run-id';
/** The fields that are written of wandb/proto/wandb_internal.proto. */
const recordType = protobuf
  .parse(
    `syntax = "proto3";
    message Item { string key = 1; string value_json = 16; }
    message Step { int64 num = 1; }
    message History { repeated Item item = 1; Step step = 2; }
    message Update { repeated Item update = 1; }
    message Options { bool defined = 3; }
    message Metric { string name = 1; string glob_name = 2; string step_metric = 4; Options options = 6; }
    message Timestamp { int64 seconds = 1; }
    message Run {
      string run_id = 1; string entity = 2; string project = 3; Update config = 4; string run_group = 6;
      string display_name = 8; repeated string tags = 10; Timestamp start_time = 17;
    }
    message Exit { int32 exit_code = 1; }
    message Version { string producer = 1; string min_consumer = 2; }
    message Header { Version version_info = 1; }
    message Record {
      int64 num = 1; History history = 2; Update summary = 3; Metric metric = 12; Run run = 17; Exit exit = 18;
      Header header = 21;
    }`,
    { keepCase: true },
  )
  .root.lookupType('Record');
/** Minimum version of readers that know all written fields. */
const MIN_CONSUMER = '0.12.0';

/**
 * Writes an offline run of Weights & Biases, which `wandb sync <folder>/offline-run-*` uploads. Every row is a step of its
 * own; the trainer's step is a number in it and the axis of all others. Sessions of a resumed run share its id.
 */
export class WandbRun implements MetricSink {
  readonly #log: LevelDbLog;
  #records = 0;
  #rows: number;
  #last: { readonly [name: string]: number } = {};

  /** @param rows rows that earlier sessions of the run have written */
  constructor(folder: string, settings: WandbSettings, run: TrackedRun, rows: number, now = new Date()) {
    mkdirSync(folder, { recursive: true });
    const id = runId(folder);
    const place = freshFolder(folder, id, now);
    this.#log = new LevelDbLog(join(place, `run-${id}.wandb`), HEADER);
    this.#rows = rows;
    const options = { defined: true };
    this.#append({ header: { version_info: { producer: MIN_CONSUMER, min_consumer: MIN_CONSUMER } } });
    this.#append({ run: describeRun(id, settings, run, now) });
    this.#append({ metric: { name: 'step', options } });
    this.#append({ metric: { glob_name: '*', step_metric: 'step', options } });
  }

  write(step: number, metrics: { readonly [name: string]: number }): void {
    const row = { ...metrics, step };
    const number = this.#rows++;
    const item = items({ ...row, _step: number, _timestamp: Date.now() / 1000 });
    this.#append({ history: { item, step: { num: number } } });
    this.#last = { ...this.#last, ...row };
  }

  async close(): Promise<void> {
    this.#append({ summary: { update: items(this.#last) } });
    this.#append({ exit: { exit_code: 0 } });
  }

  #append(record: { readonly [kind: string]: object }): void {
    const message = recordType.fromObject({ num: ++this.#records, ...record });
    this.#log.append(recordType.encode(message).finish());
  }
}

/** The run's id, the same for all its sessions. */
function runId(folder: string): string {
  const file = join(folder, RUN_ID_FILE);
  if (!existsSync(file)) writeFileSync(file, randomBytes(4).toString('hex'));
  return readFileSync(file, 'utf8');
}

/** A new folder for this session, named after the first second from now on without a folder. */
function freshFolder(folder: string, id: string, now: Date): string {
  for (let time = now.getTime(); ; time += 1000) {
    const stamp = new Date(time).toISOString().slice(0, 19).replace(/[-:]/g, '').replace('T', '_');
    const place = join(folder, `offline-run-${stamp}-${id}`);
    if (existsSync(place)) continue;
    mkdirSync(place);
    return place;
  }
}

function describeRun(id: string, settings: WandbSettings, { name, config }: TrackedRun, now: Date): object {
  const update = Object.entries(config).map(([key, value]) => ({ key, value_json: JSON.stringify(value) }));
  return {
    run_id: id,
    entity: settings.entity,
    project: settings.project,
    config: { update },
    run_group: settings.group,
    display_name: name,
    tags: settings.tags,
    start_time: { seconds: Math.floor(now.getTime() / 1000) },
  };
}

/** Numbers that are not finite are written as the texts that Weights & Biases reads them from. */
function items(values: { readonly [name: string]: number }): { key: string; value_json: string }[] {
  return Object.entries(values).map(([key, value]) => ({
    key,
    value_json: JSON.stringify(Number.isFinite(value) ? value : String(value)),
  }));
}

import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Json } from '../../shared/json.ts';
import { LevelDbLog } from './leveldb-log.ts';
import { bytesField, concat, textField, varintField } from './protobuf.ts';
import type { MetricSink } from './tracker.ts';

export interface WandbSettings {
  readonly project: string;
  /** Null: the default of whoever uploads. */
  readonly entity: string | null;
  readonly group: string | null;
  readonly tags: readonly string[];
}

/** What is told of a run besides its numbers. */
export interface TrackedRun {
  readonly name: string;
  readonly config: { readonly [key: string]: Json };
}

/** `:W&B`, 0xBEE1, version 0. */
const HEADER = Uint8Array.of(0x3a, 0x57, 0x26, 0x42, 0xe1, 0xbe, 0);
const RUN_ID_FILE = 'run-id';
/** Field numbers of wandb/proto/wandb_internal.proto. */
const RECORD = { num: 1, history: 2, summary: 3, metric: 12, run: 17, exit: 18, header: 21 };
const RUN = { id: 1, entity: 2, project: 3, config: 4, group: 6, displayName: 8, tags: 10, startTime: 17 };
const TIMESTAMP_SECONDS = 1;
const UPDATE = 1;
const ITEM = { key: 1, value: 16 };
const HISTORY = { item: 1, step: 2 };
const STEP_NUMBER = 1;
const SUMMARY_UPDATE = 1;
const METRIC = { name: 1, glob: 2, stepMetric: 4, options: 6 };
const METRIC_DEFINED = 3;
const VERSION = { info: 1, producer: 1, minConsumer: 2 };
const EXIT_CODE = 1;
/** Readers of this version and later know all that is written. */
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
    const version = concat([
      textField(VERSION.producer, MIN_CONSUMER),
      textField(VERSION.minConsumer, MIN_CONSUMER),
    ]);
    this.#append(RECORD.header, bytesField(VERSION.info, version));
    this.#append(RECORD.run, runRecord(id, settings, run, now));
    const defined = bytesField(METRIC.options, varintField(METRIC_DEFINED, 1));
    this.#append(RECORD.metric, concat([textField(METRIC.name, 'step'), defined]));
    const axis = [textField(METRIC.glob, '*'), textField(METRIC.stepMetric, 'step')];
    this.#append(RECORD.metric, concat([...axis, defined]));
  }

  write(step: number, metrics: { readonly [name: string]: number }): void {
    const row = { ...metrics, step };
    const number = this.#rows++;
    const items = Object.entries({ ...row, _step: number, _timestamp: Date.now() / 1000 });
    this.#append(
      RECORD.history,
      concat([
        ...items.map(([name, value]) => bytesField(HISTORY.item, item(name, value))),
        bytesField(HISTORY.step, varintField(STEP_NUMBER, number)),
      ]),
    );
    this.#last = { ...this.#last, ...row };
  }

  async close(): Promise<void> {
    const updates = Object.entries(this.#last).map(([name, value]) =>
      bytesField(SUMMARY_UPDATE, item(name, value)),
    );
    this.#append(RECORD.summary, concat(updates));
    this.#append(RECORD.exit, varintField(EXIT_CODE, 0));
  }

  #append(field: number, record: Uint8Array): void {
    this.#records++;
    this.#log.append(concat([varintField(RECORD.num, this.#records), bytesField(field, record)]));
  }
}

/** The run's id, the same for all its sessions. */
function runId(folder: string): string {
  const file = join(folder, RUN_ID_FILE);
  if (!existsSync(file)) writeFileSync(file, randomBytes(4).toString('hex'));
  return readFileSync(file, 'utf8');
}

/** A folder of this session alone: named after the first second from now on that no other has. */
function freshFolder(folder: string, id: string, now: Date): string {
  for (let time = now.getTime(); ; time += 1000) {
    const stamp = new Date(time).toISOString().slice(0, 19).replace(/[-:]/g, '').replace('T', '_');
    const place = join(folder, `offline-run-${stamp}-${id}`);
    if (existsSync(place)) continue;
    mkdirSync(place);
    return place;
  }
}

function runRecord(id: string, settings: WandbSettings, { name, config }: TrackedRun, now: Date): Uint8Array {
  const updates = Object.entries(config).map(([key, value]) =>
    bytesField(UPDATE, concat([textField(ITEM.key, key), textField(ITEM.value, JSON.stringify(value))])),
  );
  const seconds = Math.floor(now.getTime() / 1000);
  return concat([
    textField(RUN.id, id),
    ...(settings.entity === null ? [] : [textField(RUN.entity, settings.entity)]),
    textField(RUN.project, settings.project),
    bytesField(RUN.config, concat(updates)),
    ...(settings.group === null ? [] : [textField(RUN.group, settings.group)]),
    textField(RUN.displayName, name),
    ...settings.tags.map(tag => textField(RUN.tags, tag)),
    bytesField(RUN.startTime, varintField(TIMESTAMP_SECONDS, seconds)),
  ]);
}

/** Numbers that are not finite are written as the texts that Weights & Biases reads them from. */
function item(name: string, value: number): Uint8Array {
  const json = Number.isFinite(value) ? JSON.stringify(value) : JSON.stringify(String(value));
  return concat([textField(ITEM.key, name), textField(ITEM.value, json)]);
}

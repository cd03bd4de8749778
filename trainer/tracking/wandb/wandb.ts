import { randomBytes } from 'node:crypto';
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import protobuf from 'protobufjs';
import type { Json } from '../../../shared/json.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { MetricSink } from '../tracker.ts';

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

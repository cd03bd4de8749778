import { appendFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import protobuf from 'protobufjs';
import { appendJsonLine, keepRows } from './jsonlines.ts';

/** Metric of every validation row. */
const VALIDATION_MARK = 'val-env/success';

/** Prefix of the names of a validation's tables. */
const VALIDATION_TABLES = 'val/';

/** Receives the numbers of a run. */
export interface MetricSink {
  /** One row; several rows of the same step are fine as long as their names differ. */
  write(step: number, metrics: { readonly [name: string]: number }): void;
  /** Sends waiting rows; nothing can be written afterwards. */
  close(): Promise<void>;
}

/** Rows under named columns, for results that are more than one number. */
export interface MetricTable {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly (string | number)[])[];
}

/** Receiver of a run's numbers and tables. */
export interface Tracker extends MetricSink {
  /** Writes a table, only to the run's own file of tables. */
  writeTable(step: number, name: string, table: MetricTable): void;
}

/** Opens a sink after the number of the run's earlier rows is known. */
export type OpenSink = (rows: number) => MetricSink;

/**
 * Always writes JSON Lines, TensorBoard events if requested, and to the given sinks. Rows that an earlier session of
 * the run wrote after its last checkpoint are removed first: those steps will run again and must not count twice.
 * @param files JSON Lines of metrics and of tables
 * @param done last step and last validation in the checkpoint; −1 for none
 * @param tensorboard folder of the event files, undefined for none
 */
export function openTracker(
  files: { readonly metrics: string; readonly tables: string },
  done: { readonly step: number; readonly validation: number },
  tensorboard: string | undefined,
  more: readonly OpenSink[] = [],
): Tracker {
  const isDone = (step: number, isValidation: boolean) =>
    step <= (isValidation ? done.validation : done.step);
  const rows = keepRows<{ step: number }>(files.metrics, row => isDone(row.step, VALIDATION_MARK in row));
  // Pages look for this file from the start of a run.
  appendFileSync(files.metrics, '');
  keepRows<{ step: number; name: string }>(files.tables, ({ step, name }) =>
    isDone(step, name.startsWith(VALIDATION_TABLES)),
  );
  const board = tensorboard === undefined ? undefined : new TensorBoardWriter(tensorboard, done.step + 1);
  const sinks = more.map(open => open(rows));
  return {
    write(step, metrics) {
      appendJsonLine(files.metrics, { step, time: new Date().toISOString(), ...metrics });
      board?.write(step, metrics);
      for (const sink of sinks) sink.write(step, metrics);
    },
    writeTable(step, name, table) {
      appendJsonLine(files.tables, { step, name, ...table });
    },
    async close() {
      await Promise.all(sinks.map(sink => sink.close()));
    },
  };
}

const FILE_VERSION = 'brain.Event:2';
/** TFRecord checksums are rotated right by 15 bits, plus this. */
const MASK_DELTA = 0xa282ead8;

/** The written fields of tensorflow/core/util/event.proto and framework/summary.proto; times in seconds. */
const eventType = protobuf
  .parse(
    `syntax = "proto3";
    message SessionLog { enum Status { UNSPECIFIED = 0; START = 1; } Status status = 1; }
    message Value { string tag = 1; oneof value { float simple_value = 2; } }
    message Summary { repeated Value value = 1; }
    message Event {
      double wall_time = 1; int64 step = 2;
      oneof what { string file_version = 3; Summary summary = 5; SessionLog session_log = 7; }
    }`,
    { keepCase: true },
  )
  .root.lookupType('Event');

/**
 * Writes scalars as a TensorBoard event file: TFRecords of `Event` messages
 * (https://github.com/tensorflow/tensorboard, tensorboard/compat/proto/event.proto).
 * A run that resumes writes a further file; its first event makes readers drop all that an earlier file
 * holds from `firstStep` on.
 */
export class TensorBoardWriter {
  readonly #file: string;

  constructor(folder: string, firstStep: number, now = Date.now()) {
    mkdirSync(folder, { recursive: true });
    this.#file = join(folder, `events.out.tfevents.${Math.floor(now / 1000)}.${process.pid}.ragen`);
    this.#append({ wall_time: now / 1000, file_version: FILE_VERSION });
    this.#append({ wall_time: now / 1000, step: firstStep, session_log: { status: 'START' } });
  }

  /** Scalars of one step; values that are not finite are written as they are. */
  write(step: number, scalars: { readonly [name: string]: number }, now = Date.now()): void {
    const value = Object.entries(scalars).map(([tag, simple_value]) => ({ tag, simple_value }));
    this.#append({ wall_time: now / 1000, step, summary: { value } });
  }

  #append(event: { readonly wall_time: number; readonly [field: string]: unknown }): void {
    appendFileSync(this.#file, record(eventType.encode(eventType.fromObject(event)).finish()));
  }
}

/** Length, its checksum, the bytes, their checksum; all little-endian. */
function record(bytes: Uint8Array): Buffer {
  const frame = Buffer.alloc(bytes.length + 16);
  frame.writeBigUInt64LE(BigInt(bytes.length), 0);
  frame.writeUInt32LE(maskedChecksum(frame.subarray(0, 8)), 8);
  frame.set(bytes, 12);
  frame.writeUInt32LE(maskedChecksum(bytes), 12 + bytes.length);
  return frame;
}

/** CRC-32C of each byte (RFC 3720). */
const CRC32C = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  return crc;
});

export function crc32c(bytes: Uint8Array): number {
  let crc = -1;
  for (const byte of bytes) crc = CRC32C[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return ~crc >>> 0;
}

function maskedChecksum(bytes: Uint8Array): number {
  const crc = crc32c(bytes);
  return (((crc >>> 15) | (crc << 17)) + MASK_DELTA) >>> 0;
}

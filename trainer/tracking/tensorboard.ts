import { appendFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { maskedCrc32c } from './crc32c.ts';
import { bytesField, concat, doubleField, floatField, textField, uint32, varintField } from './protobuf.ts';

const FILE_VERSION = 'brain.Event:2';
/** Field numbers of tensorflow/core/util/event.proto and framework/summary.proto. */
const EVENT = { wallTime: 1, step: 2, fileVersion: 3, summary: 5, sessionLog: 7 };
const SUMMARY_VALUE = 1;
const VALUE = { tag: 1, simpleValue: 2 };
const SESSION_STATUS = 1;
const SESSION_START = 1;

/**
 * Writes scalars as a TensorBoard event file: TFRecords of `Event` messages
 * (https://github.com/tensorflow/tensorboard, tensorboard/compat/proto/event.proto).
 * A run that resumes writes a further file, whose first event tells readers to drop what an earlier file
 * holds from `firstStep` on.
 */
export class TensorBoardWriter {
  readonly #file: string;

  constructor(folder: string, firstStep: number, now = Date.now()) {
    mkdirSync(folder, { recursive: true });
    this.#file = join(folder, `events.out.tfevents.${Math.floor(now / 1000)}.${process.pid}.ragen`);
    const version = encodeEvent(now, 0, textField(EVENT.fileVersion, FILE_VERSION));
    const start = encodeEvent(
      now,
      firstStep,
      bytesField(EVENT.sessionLog, varintField(SESSION_STATUS, SESSION_START)),
    );
    appendFileSync(this.#file, concat([record(version), record(start)]));
  }

  /** Scalars of one step; values that are not finite are written as they are. */
  write(step: number, scalars: { readonly [name: string]: number }, now = Date.now()): void {
    const values = Object.entries(scalars).map(([tag, value]) =>
      bytesField(SUMMARY_VALUE, concat([textField(VALUE.tag, tag), floatField(VALUE.simpleValue, value)])),
    );
    appendFileSync(this.#file, record(encodeEvent(now, step, bytesField(EVENT.summary, concat(values)))));
  }
}

function encodeEvent(now: number, step: number, what: Uint8Array): Uint8Array {
  return concat([doubleField(EVENT.wallTime, now / 1000), varintField(EVENT.step, step), what]);
}

/** Length, its checksum, the bytes, their checksum; all little-endian. */
function record(bytes: Uint8Array): Uint8Array {
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(bytes.length), true);
  return concat([length, uint32(maskedCrc32c(length)), bytes, uint32(maskedCrc32c(bytes))]);
}

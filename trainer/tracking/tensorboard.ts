import { appendFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { maskedCrc32c } from './crc32c.ts';

const FILE_VERSION = 'brain.Event:2';
const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;
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
    const version = encodeEvent(now, 0, field(EVENT.fileVersion, utf8(FILE_VERSION)));
    const start = encodeEvent(
      now,
      firstStep,
      field(EVENT.sessionLog, concat([key(SESSION_STATUS, VARINT), varint(SESSION_START)])),
    );
    appendFileSync(this.#file, concat([record(version), record(start)]));
  }

  /** Scalars of one step; values that are not finite are written as they are. */
  write(step: number, scalars: { readonly [name: string]: number }, now = Date.now()): void {
    const values = Object.entries(scalars).map(([tag, value]) =>
      field(
        SUMMARY_VALUE,
        concat([field(VALUE.tag, utf8(tag)), key(VALUE.simpleValue, FIXED32), float32(value)]),
      ),
    );
    appendFileSync(this.#file, record(encodeEvent(now, step, field(EVENT.summary, concat(values)))));
  }
}

function encodeEvent(now: number, step: number, what: Uint8Array): Uint8Array {
  return concat([
    key(EVENT.wallTime, FIXED64),
    float64(now / 1000),
    key(EVENT.step, VARINT),
    varint(step),
    what,
  ]);
}

/** Length, its checksum, the bytes, their checksum; all little-endian. */
function record(bytes: Uint8Array): Uint8Array {
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(bytes.length), true);
  return concat([length, uint32(maskedCrc32c(length)), bytes, uint32(maskedCrc32c(bytes))]);
}

function field(number: number, bytes: Uint8Array): Uint8Array {
  return concat([key(number, BYTES), varint(bytes.length), bytes]);
}

function key(number: number, wireType: number): Uint8Array {
  return varint((number << 3) | wireType);
}

function varint(value: number): Uint8Array {
  const out: number[] = [];
  let rest = value;
  while (rest > 127) {
    out.push((rest % 128) | 128);
    rest = Math.floor(rest / 128);
  }
  out.push(rest);
  return Uint8Array.from(out);
}

function view(bytes: number, write: (view: DataView) => void): Uint8Array {
  const out = new Uint8Array(bytes);
  write(new DataView(out.buffer));
  return out;
}

const uint32 = (value: number) => view(4, v => v.setUint32(0, value, true));
const float32 = (value: number) => view(4, v => v.setFloat32(0, value, true));
const float64 = (value: number) => view(8, v => v.setFloat64(0, value, true));
const utf8 = (text: string) => new TextEncoder().encode(text);
const concat = (parts: readonly Uint8Array[]): Uint8Array => Buffer.concat(parts);

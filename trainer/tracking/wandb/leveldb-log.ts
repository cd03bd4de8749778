import { appendFileSync } from 'node:fs';
import { crc32 } from 'node:zlib';

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
export class LevelDbLog {
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

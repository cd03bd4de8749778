import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { isOfOtherBoot } from '../lock.ts';
import type { JournalFault, JournalFile, PositionedRecord, ReplayFindings } from './journal-files.ts';
import { NO_SESSION, type RecordText, recordOf } from './records.ts';

/**
 * Reads the segments of earlier servers, so that their data folders open. A segment begins with a byte that says what is
 * not in it; frames follow, then zeros up to a multiple of a step. All numbers are little-endian.
 *
 * | bytes | content of a frame |
 * |---|---|
 * | 1 | `0x1e`, the record separator of RFC 7464, which JSON text never has |
 * | 4 | length of the payload in bytes |
 * | 4 | CRC-32 of the payload, with the length as its initial value |
 * | … | payload: one character for the kind, session id, space, number of the record, and, after a space, JSON |
 *
 * The first record of a segment, kind `h`, describes it. The first checkpoint covers all segments and deletes them.
 */

const SEPARATOR = 0x1e;
const HEADER_BYTES = 9;
const MAX_PAYLOAD_BYTES = 64 * 1024 * 1024;
const FLAG_BYTES = 1;
const PADDING_BYTES = 64 * 1024;
/** First byte of a segment: replies left for records that could not be written; another segment follows. */
const UNWRITTEN_REPLIES = 1;
const FOLLOWED = 2;
const SEGMENT_KIND = 'h';
const FORMAT = 1;
const NUMBER_DIGITS = 10;
/** A session id at the start of a damaged payload. */
const DAMAGED_ID = /^[a-z]([\w-]{1,128}) \d/;
const DAMAGED_ID_BYTES = 140;

interface Head {
  readonly format: number;
  readonly boot: string;
  readonly synced: boolean;
  /** Zeros follow the last record. */
  readonly padded?: true;
  /** Number of the segment that the same process wrote before. */
  readonly after?: number;
}

interface SegmentFrame extends Omit<RecordText, 'letter'> {
  readonly letter: RecordText['letter'] | typeof SEGMENT_KIND;
}

/** The records of a segment, oldest first; damage is added to `findings`. */
export function* recordsOfSegment(
  folder: string,
  segment: JournalFile,
  files: readonly JournalFile[],
  findings: ReplayFindings,
): Generator<PositionedRecord> {
  const { name: file } = segment;
  const note = (kind: JournalFault['kind'], offset: number, more: Partial<JournalFault> = {}) =>
    findings.faults.push({ kind, file, offset, ...more });
  let bytes: Buffer;
  try {
    bytes = readFileSync(join(folder, file));
  } catch (error) {
    note('unreadable', 0, { reason: (error as Error).message });
    return;
  }
  const head = headOf(bytes);
  lookAround(segment, files, bytes[0], head, findings);
  if (head && !head.synced && isOfOtherBoot(head.boot)) findings.incomplete = 'the machine went down';
  // A record ends with a digit or with JSON, never with a zero.
  const end = bytes.findLastIndex(byte => byte !== 0) + 1;
  const records = head && !head.padded ? bytes : bytes.subarray(0, Math.max(end, FLAG_BYTES));
  for (let offset = FLAG_BYTES; offset < records.length; ) {
    const next = frameEnd(records, offset);
    if (next === undefined) {
      const sound = nextFrame(records, offset + 1) ?? records.length;
      const start = offset + HEADER_BYTES;
      const [, id] = DAMAGED_ID.exec(records.toString('latin1', start, start + DAMAGED_ID_BYTES)) ?? [];
      const isTorn = sound === records.length && isUnfinished(records, offset);
      note(isTorn ? 'torn' : 'corrupt', offset, id === undefined ? {} : { sessionIds: [id] });
      offset = sound;
      continue;
    }
    const frame = parseFrame(records, offset, next);
    const record = recordOf(frame as RecordText);
    const isHead = frame.letter === SEGMENT_KIND;
    if (isHead ? (JSON.parse(frame.text) as Head).format !== FORMAT : !record) {
      note('unreadable', offset, { reason: 'it was written by another version of the server' });
      break;
    }
    if (record && (record.sessionId !== NO_SESSION || record.kind === 'clientReply'))
      yield { record, position: { file, offset } };
    offset = next;
  }
  const wasPadded = head?.padded && !isOfOtherBoot(head.boot);
  const lostEnd = wasPadded
    ? records.length === bytes.length || bytes.length % PADDING_BYTES !== 0
    : !head && bytes.length <= FLAG_BYTES;
  if (lostEnd) note('cut', records.length);
}

function headOf(bytes: Buffer): Head | undefined {
  const end = frameEnd(bytes, FLAG_BYTES);
  const frame = end === undefined ? undefined : parseFrame(bytes, FLAG_BYTES, end);
  return frame?.letter === SEGMENT_KIND ? (JSON.parse(frame.text) as Head) : undefined;
}

/**
 * Reports missing segments that the same process must have written before or after this one, and records never written.
 */
function lookAround(
  { name, number }: JournalFile,
  files: readonly JournalFile[],
  flag: number,
  head: Head | undefined,
  findings: ReplayFindings,
): void {
  const writer = name.slice(NUMBER_DIGITS);
  const own = files.filter(file => !file.isTurns && file.name.slice(NUMBER_DIGITS) === writer);
  const isLast = !own.some(other => other.number > number);
  const missing = (which: number, reason: string) => {
    const file = String(which).padStart(NUMBER_DIGITS, '0') + writer;
    findings.faults.push({ kind: 'missing', file, offset: 0, reason });
  };
  if (flag === FOLLOWED && isLast) missing(number + 1, `${name} was not the last`);
  if (flag === UNWRITTEN_REPLIES && isLast)
    findings.incomplete = 'the disk took no writes when the server ended';
  const isFirst = !own.some(other => other.number < number);
  const { after } = head ?? {};
  if (after !== undefined && !isFirst && !own.some(other => other.number === after))
    missing(after, `${name} follows it`);
}

/** The end of the frame at an offset; undefined where there is no whole, undamaged frame. */
function frameEnd(bytes: Buffer, offset: number): number | undefined {
  const from = offset + HEADER_BYTES;
  if (from > bytes.length || bytes[offset] !== SEPARATOR) return undefined;
  const length = bytes.readUInt32LE(offset + 1);
  const to = from + length;
  if (length > MAX_PAYLOAD_BYTES || to > bytes.length) return undefined;
  return bytes.readUInt32LE(offset + 5) === crc32(bytes.subarray(from, to), length) ? to : undefined;
}

/** True if the bytes end within the frame at an offset. */
function isUnfinished(bytes: Buffer, offset: number): boolean {
  if (bytes[offset] !== SEPARATOR) return false;
  if (offset + HEADER_BYTES > bytes.length) return true;
  const length = bytes.readUInt32LE(offset + 1);
  return length <= MAX_PAYLOAD_BYTES && offset + HEADER_BYTES + length > bytes.length;
}

/** Offset of the next undamaged frame, or undefined. */
function nextFrame(bytes: Buffer, offset: number): number | undefined {
  for (let at = bytes.indexOf(SEPARATOR, offset); at >= 0; at = bytes.indexOf(SEPARATOR, at + 1))
    if (frameEnd(bytes, at) !== undefined) return at;
  return undefined;
}

function parseFrame(bytes: Buffer, offset: number, end: number): SegmentFrame {
  const text = bytes.toString('utf8', offset + HEADER_BYTES, end);
  const afterId = text.indexOf(' ');
  const space = text.indexOf(' ', afterId + 1);
  const afterNumber = space < 0 ? text.length : space;
  return {
    letter: text[0] as SegmentFrame['letter'],
    sessionId: text.slice(1, afterId),
    n: Number(text.slice(afterId + 1, afterNumber)),
    text: text.slice(afterNumber + 1),
  };
}

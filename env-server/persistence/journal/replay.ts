import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { frameEnd, HEADER_BYTES, isUnfinished, nextFrame, parseFrame } from './frames.ts';
import { type JournalRecord, NO_SESSION, recordOf, type SegmentBody } from './records.ts';
import {
  bootId,
  FLAG_BYTES,
  FOLLOWED,
  JOURNAL_FORMAT,
  PADDING_BYTES,
  UNWRITTEN_REPLIES,
} from './segment-writer.ts';
import { type Segment, segmentName } from './segments.ts';

/** Milliseconds that reading may hold up everything else at once, applying the records included. */
const SLICE_MS = 4;
/** A session id at the beginning of a damaged payload. */
const DAMAGED_ID = /^[a-z]([\w-]{1,128}) \d/;
const DAMAGED_ID_BYTES = 140;

/** Position of a record. */
export interface JournalPosition {
  /** Name of the segment. */
  readonly file: string;
  readonly offset: number;
}

/** An unreadable part of a segment. */
export interface JournalFault extends JournalPosition {
  /**
   * `torn`: a record is incomplete, as when the process dies in the middle of a write; no reply had left for what was
   * written there. `cut`: the file has lost its end, although the machine did not go down. `missing`: the file is gone.
   * `corrupt`: bytes were changed. `unreadable`: the file itself cannot be read, or its format is not known.
   */
  readonly kind: 'torn' | 'cut' | 'missing' | 'corrupt' | 'unreadable';
  readonly bytes: number;
  /** Session of the record, where that can be made out. */
  readonly sessionId?: string;
  readonly reason?: string;
}

/** Findings of replaying besides records. */
export interface ReplayFindings {
  readonly faults: JournalFault[];
  /** Why the last records of any session may be missing although no damage shows it; undefined where none can be. */
  incomplete: string | undefined;
}

/**
 * Reads the records of segments, oldest first. It lets others have their turn every few milliseconds, so that a server can
 * serve meanwhile. Damage is no error: it is noted in `findings`, and reading goes on behind it.
 * @param signal stops it between two records
 */
export async function* replayJournal(
  folder: string,
  segments: readonly Segment[],
  findings: ReplayFindings,
  signal?: AbortSignal,
): AsyncGenerator<{ readonly record: JournalRecord; readonly position: JournalPosition }> {
  let sliceEnd = performance.now() + SLICE_MS;
  for (const segment of segments) {
    const { name: file } = segment;
    const bytes = await read(folder, file, findings);
    if (!bytes) continue;
    const { records, head } = outlineOf(bytes);
    lookAround(segment, segments, bytes[0], head, findings);
    for (let offset = FLAG_BYTES; offset < records.length; ) {
      if (signal?.aborted) return;
      if (performance.now() >= sliceEnd) {
        await nextTurn();
        sliceEnd = performance.now() + SLICE_MS;
      }
      const end = frameEnd(records, offset);
      if (end === undefined) {
        offset = skipDamage(records, { file, offset }, findings);
        continue;
      }
      const record = recordOf(parseFrame(records, offset, end));
      if (record === undefined || (record.kind === 'segment' && !isReadable(record.body, findings))) {
        const reason = 'it was written by another version of the server';
        findings.faults.push({ kind: 'unreadable', file, offset, bytes: records.length - offset, reason });
        break;
      }
      if (record.sessionId !== NO_SESSION || record.kind === 'clientReply')
        yield { record, position: { file, offset } };
      offset = end;
    }
    if (isCut(bytes, records, head)) {
      findings.faults.push({ kind: 'cut', file, offset: records.length, bytes: 0 });
    }
  }
}

/** First record of a segment, which describes it, and its bytes without the zeros that follow its records. */
function outlineOf(bytes: Buffer): { readonly records: Buffer; readonly head: SegmentBody | undefined } {
  const end = frameEnd(bytes, FLAG_BYTES);
  const first = end === undefined ? undefined : recordOf(parseFrame(bytes, FLAG_BYTES, end));
  const head = first?.kind === 'segment' ? first.body : undefined;
  let length = bytes.length;
  // A record ends with a digit or with JSON, never with a zero.
  while (length > FLAG_BYTES && bytes[length - 1] === 0) length--;
  return { records: head && !head.padded ? bytes : bytes.subarray(0, length), head };
}

/**
 * Whether a segment has lost its end. The kernel keeps what it was given over the end of the process, so that only the
 * end of the machine explains it.
 */
function isCut(bytes: Buffer, records: Buffer, head: SegmentBody | undefined): boolean {
  if (!head) return bytes.length <= FLAG_BYTES;
  if (!head.padded || isOfOtherBoot(head)) return false;
  return records.length === bytes.length || bytes.length % PADDING_BYTES !== 0;
}

/** Notes segments of the same process that must have been there before and after this one, and what was never written. */
function lookAround(
  { name: file, number, run, index }: Segment,
  segments: readonly Segment[],
  flag: number,
  head: SegmentBody | undefined,
  findings: ReplayFindings,
): void {
  const own = segments.filter(other => other.run === run && other.index === index);
  const isLast = !own.some(other => other.number > number);
  const missing = (which: number, reason: string) => {
    const name = segmentName(which, { run, index, count: 0 });
    findings.faults.push({ kind: 'missing', file: name, offset: 0, bytes: 0, reason });
  };
  if (flag === FOLLOWED && isLast) missing(number + 1, `${file} was not the last`);
  if (flag === UNWRITTEN_REPLIES && isLast) {
    findings.incomplete = 'the disk took no writes when the server ended';
  }
  const isFirst = !own.some(other => other.number < number);
  const { after } = head ?? {};
  if (after !== undefined && !isFirst && !own.some(other => other.number === after)) {
    missing(after, `${file} follows it`);
  }
}

async function read(folder: string, file: string, { faults }: ReplayFindings): Promise<Buffer | undefined> {
  try {
    return await readFile(join(folder, file));
  } catch (error) {
    // Another process of the server needed it no more, nor did this one.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    faults.push({ kind: 'unreadable', file, offset: 0, bytes: 0, reason: (error as Error).message });
    return undefined;
  }
}

function isReadable(head: SegmentBody, findings: ReplayFindings): boolean {
  if (!head.synced && isOfOtherBoot(head)) findings.incomplete = 'the machine went down';
  return head.format === JOURNAL_FORMAT;
}

/** True if the machine has gone down since; false where the system does not say. */
function isOfOtherBoot({ boot }: SegmentBody): boolean {
  const now = bootId();
  return boot !== '' && now !== '' && boot !== now;
}

/** Notes the damage at a position; gives where reading goes on. */
function skipDamage(bytes: Buffer, { file, offset }: JournalPosition, { faults }: ReplayFindings): number {
  const next = nextFrame(bytes, offset + 1) ?? bytes.length;
  const kind = next === bytes.length && isUnfinished(bytes, offset) ? 'torn' : 'corrupt';
  const from = offset + HEADER_BYTES;
  const [, sessionId] = DAMAGED_ID.exec(bytes.toString('latin1', from, from + DAMAGED_ID_BYTES)) ?? [];
  faults.push({ kind, file, offset, bytes: next - offset, ...(sessionId !== undefined && { sessionId }) });
  return next;
}

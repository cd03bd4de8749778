import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { frameEnd, HEADER_BYTES, isUnfinished, nextFrame, parseFrame } from './frames.ts';
import { type JournalRecord, NO_SESSION, recordOf } from './records.ts';
import { bootId, FLAG_BYTES, JOURNAL_FORMAT, UNWRITTEN_REPLIES } from './segment-writer.ts';
import type { Segment } from './segments.ts';

/** What reading may hold up everything else at once, what is done with the records included. */
const SLICE_MS = 4;
/** A session id at the beginning of a damaged payload. */
const DAMAGED_ID = /^[a-z]([\w-]{1,128}) \d/;
const DAMAGED_ID_BYTES = 140;

/** Where a record stands. */
export interface JournalPosition {
  /** Name of the segment. */
  readonly file: string;
  readonly offset: number;
}

/** What cannot be read of a segment. */
export interface JournalFault extends JournalPosition {
  /**
   * `torn`: the segment ends within a record, as when the process dies in the middle of a write; no reply had left for
   * what was written there. `corrupt`: bytes were changed. `unreadable`: the file itself cannot be read, or its format
   * is not known.
   */
  readonly kind: 'torn' | 'corrupt' | 'unreadable';
  readonly bytes: number;
  /** Whose record it was, where that can be made out. */
  readonly sessionId?: string;
  readonly reason?: string;
}

/** What replaying found besides records. */
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
    if (!bytes || bytes.length === 0) continue;
    if (bytes[0] === UNWRITTEN_REPLIES && isLast(segment, segments)) {
      findings.incomplete = 'the disk took no writes when the server ended';
    }
    for (let offset = FLAG_BYTES; offset < bytes.length; ) {
      if (signal?.aborted) return;
      if (performance.now() >= sliceEnd) {
        await nextTurn();
        sliceEnd = performance.now() + SLICE_MS;
      }
      const end = frameEnd(bytes, offset);
      if (end === undefined) {
        offset = skipDamage(bytes, { file, offset }, findings);
        continue;
      }
      const record = recordOf(parseFrame(bytes, offset, end));
      if (record === undefined || (record.kind === 'segment' && !isReadable(record.body, findings))) {
        const reason = 'it was written by another version of the server';
        findings.faults.push({ kind: 'unreadable', file, offset, bytes: bytes.length - offset, reason });
        break;
      }
      if (record.sessionId !== NO_SESSION || record.kind === 'clientReply')
        yield { record, position: { file, offset } };
      offset = end;
    }
  }
}

/** What a process could not write to a segment it has written to its next one. */
function isLast({ number, run, index }: Segment, segments: readonly Segment[]): boolean {
  return !segments.some(other => other.run === run && other.index === index && other.number > number);
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

function isReadable(
  { format, boot, synced }: { readonly format: number; readonly boot: string; readonly synced: boolean },
  findings: ReplayFindings,
): boolean {
  const now = bootId();
  if (!synced && boot !== '' && now !== '' && boot !== now) findings.incomplete = 'the machine went down';
  return format === JOURNAL_FORMAT;
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

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { makePrivateFolder } from '../private-files.ts';
import { FrameBuffer } from './frames.ts';
import { NO_SESSION, RECORD_KINDS } from './records.ts';
import { type JournalFiles, type JournalWriter, nextNumber, segmentName } from './segments.ts';

export const JOURNAL_FORMAT = 1;
/** A segment begins with a byte that says what is not in it; frames follow, then zeros up to a multiple of a step. */
export const FLAG_BYTES = 1;
const COMPLETE = 0;
/** Replies have left for records that could not be written. */
export const UNWRITTEN_REPLIES = 1;
/** The process has begun another segment after it. */
export const FOLLOWED = 2;
/** A file grows by so much at a time, ahead of its records. */
export const PADDING_BYTES = 64 * 1024;

interface OwnSegment {
  readonly number: number;
  readonly path: string;
  /** Bytes of its records. */
  bytes: number;
  /** Bytes of its file, which is always longer. */
  fileBytes: number;
}

export interface SegmentSettings {
  /** Made where it is missing. */
  readonly folder: string;
  readonly writer: JournalWriter;
  readonly synced: boolean;
}

/** Writes the segments of one process, one after the other. What it throws are errors of the system. */
export class SegmentWriter {
  readonly #settings: SegmentSettings;
  readonly #files: JournalFiles;
  /** Oldest first; the last one is being written where `#file` is there. */
  readonly #segments: OwnSegment[] = [];
  #number: number;
  #file: number | undefined;
  /** Files that are being written to by `writeLater`. */
  readonly #busy = new Set<number>();
  /** First byte of the segment that is being written. */
  #flag = COMPLETE;
  /** Bytes of all its segments. */
  bytes = 0;

  constructor(settings: SegmentSettings, files: JournalFiles) {
    this.#settings = settings;
    this.#files = files;
    makePrivateFolder(settings.folder);
    this.#number = nextNumber(settings.folder);
  }

  /** A segment is being written. */
  get isOpen(): boolean {
    return this.#file !== undefined;
  }

  /** Number of the segment that comes next. */
  get next(): number {
    return this.#number;
  }

  /** Bytes of the segment that is being written. */
  get segmentBytes(): number {
    return this.#file === undefined ? 0 : this.#segments[this.#segments.length - 1].bytes;
  }

  /** Begins a segment and gives the frame that is to be its first. */
  begin(): Buffer {
    const { folder, writer, synced } = this.#settings;
    const number = this.#number;
    const path = join(folder, segmentName(number, writer));
    this.#file = this.#files.create(path);
    this.#number++;
    // Frames follow the first byte, which nothing is written to: it reads as 0.
    this.#flag = COMPLETE;
    this.#segments.push({ number, path, bytes: FLAG_BYTES, fileBytes: 0 });
    this.bytes += FLAG_BYTES;
    this.#dropEmpty();
    if (synced) this.#syncFolder(folder);
    const previous = this.#segments.at(-2);
    if (previous) this.#noteFollowed(previous);
    const head = new FrameBuffer();
    head.add(RECORD_KINDS.segment.charCodeAt(0), NO_SESSION, 0, {
      ...{ format: JOURNAL_FORMAT, boot: bootId(), synced, padded: true },
      ...(previous && { after: previous.number }),
    });
    return head.bytes;
  }

  /** Without the note only the loss of the segment that comes next would be overlooked. */
  #noteFollowed({ path }: OwnSegment): void {
    try {
      this.#files.mark(path, FOLLOWED);
    } catch {
      // The disk may be read-only; writing to it reports that.
    }
  }

  #syncFolder(folder: string): void {
    try {
      this.#files.syncFolder(folder);
    } catch (error) {
      this.leave();
      throw error;
    }
  }

  /** A disk that takes no writes leaves one empty segment behind, not one for each try. */
  #dropEmpty(): void {
    const previous = this.#segments.at(-2);
    if (previous?.bytes !== FLAG_BYTES) return;
    this.#segments.splice(-2, 1);
    this.bytes -= FLAG_BYTES;
    this.#remove(previous.path);
  }

  /** Writes some of the bytes from an offset on to the end of the segment, and says how many. */
  write(bytes: Buffer, offset: number): number {
    const segment = this.#segments[this.#segments.length - 1];
    this.#pad(segment, bytes.length - offset);
    const count = this.#files.write(this.#file!, bytes, offset, bytes.length - offset, segment.bytes);
    segment.bytes += count;
    this.bytes += count;
    return count;
  }

  /** Lets at least one zero follow what is going to be written. */
  #pad(segment: OwnSegment, count: number): void {
    const end = segment.bytes + count;
    if (end < segment.fileBytes) return;
    const fileBytes = (Math.floor(end / PADDING_BYTES) + 1) * PADDING_BYTES;
    this.#files.extend(this.#file!, fileBytes);
    segment.fileBytes = fileBytes;
  }

  /**
   * Writes all bytes from an offset on to the end of the segment, without waiting for the disk; one at a time in a segment.
   * @param done called with the reason if not all are written, and where it stopped
   */
  writeLater(bytes: Buffer, offset: number, done: (error: Error | null, end: number) => void): void {
    const segment = this.#segments[this.#segments.length - 1];
    const file = this.#file!;
    this.#pad(segment, bytes.length - offset);
    this.#busy.add(file);
    this.#files.writeLater(file, bytes, offset, segment.bytes, (error, count) => {
      this.#busy.delete(file);
      const end = error ? offset : offset + count;
      segment.bytes += end - offset;
      if (this.#segments.includes(segment)) this.bytes += end - offset;
      const isLeft = this.#file !== file;
      if (isLeft) this.#close(file);
      if (error || isLeft || end === bytes.length) done(error, end);
      else this.writeLater(bytes, end, done);
    });
  }

  /** Closes a segment. What could not be written to it is written to another one. */
  #close(file: number): void {
    try {
      this.#files.close(file);
    } catch {
      // Nothing depends on it any more.
    }
  }

  /** Notes in the segment whether replies have left for records that could not be written; needs no room on the disk. */
  note(unwrittenReplies: boolean): void {
    const flag = unwrittenReplies ? UNWRITTEN_REPLIES : COMPLETE;
    if (this.#file === undefined || this.#flag === flag) return;
    try {
      this.#files.write(this.#file, Buffer.of(flag), 0, FLAG_BYTES, 0);
      this.#flag = flag;
    } catch {
      // The fault that made it necessary is reported already, and the flag does not mend it.
    }
  }

  sync(done: (error: Error | null) => void): void {
    this.#files.sync(this.#file!, done);
  }

  syncNow(): void {
    this.#files.syncNow(this.#file!);
  }

  /** The next write begins another segment. */
  leave(): void {
    if (this.#file === undefined) return;
    const file = this.#file;
    this.#file = undefined;
    // A descriptor that is closed may soon be another file's.
    if (!this.#busy.has(file)) this.#files.close(file);
  }

  /** Deletes the segments before one, oldest first. */
  release(number: number): void {
    while (this.#segments.length > 0 && this.#segments[0].number < number) {
      const [{ path, bytes }] = this.#segments;
      this.#remove(path);
      this.#segments.shift();
      this.bytes -= bytes;
    }
  }

  #remove(path: string): void {
    try {
      this.#files.remove(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
}

/** Boot id of the operating system, another one after each start of the machine; empty where the system has none. */
export function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return '';
  }
}

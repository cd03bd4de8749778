import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { JOURNAL_FOLDER } from '../database.ts';
import { bootId, PRIVATE_FILE, PRIVATE_FOLDER } from '../lock.ts';
import { DatabaseThread } from '../thread/database-thread.ts';
import type { ReplayedRecord } from './records.ts';
import { TURN_FILE_FORMAT, type Turn, TurnFile, type TurnFileHead } from './turn-file.ts';

/** File with the {@link JournalState}. */
export const STATE_FILE = 'state';
const STATE_BYTES = 24;
/** Offset of the flag for replies that left for unwritten turns. */
const UNWRITTEN_AT = 16;
const NUMBER_DIGITS = 10;
/** With this name earlier servers, which wrote segments, report a file of turns as damage instead of ignoring it. */
const NAME = /^(\d{10})-([0-9a-z]{1,32})-\d{1,3}\.journal$/;
const TURNS = 'sqlite';
/** Marks that earlier servers put on their segments. */
const MARK = /^(.{1,80}\.journal)\.\d{1,3}of\d{1,3}$/;

/** A file of the journal. */
export interface JournalFile {
  readonly name: string;
  /** A later file has a higher number. */
  readonly number: number;
  /** True for an SQLite database of turns, false for a segment of an earlier server. */
  readonly isTurns: boolean;
  readonly bytes: number;
}

/** Position of a record. */
export interface JournalPosition {
  /** Name of the file. */
  readonly file: string;
  /** Number of the turn in it; in a segment of an earlier server, the byte offset. */
  readonly offset: number;
}

/** An unreadable part of the journal. */
export interface JournalFault extends JournalPosition {
  /**
   * `cut`: the file has lost its end, although the machine did not go down. `missing`: the file is gone. `corrupt`:
   * bytes were changed. `unreadable`: the file cannot be read, or its format is unknown. `torn`, in segments of earlier
   * servers: a record is incomplete, because the process died in the middle of a write; no reply had left for it.
   */
  readonly kind: 'torn' | 'cut' | 'missing' | 'corrupt' | 'unreadable';
  /** Sessions of the records, where all of them can be identified. */
  readonly sessionIds?: readonly string[];
  readonly reason?: string;
}

/** Faults of files that hold more than could be read. */
export const KEPT: ReadonlySet<JournalFault['kind']> = new Set(['cut', 'corrupt', 'unreadable']);

/** Findings of a replay besides records. */
export interface ReplayFindings {
  readonly faults: JournalFault[];
  /**
   * Reason why the last records of any session may be missing although no damage shows it; undefined where none can be.
   */
  incomplete: string | undefined;
}

export interface PositionedRecord {
  readonly record: ReplayedRecord;
  readonly position: JournalPosition;
}

/** End of the journal when a process ended. The file is overwritten in place, which needs no room on the disk. */
export interface JournalState {
  /** Number of the last file, and the least number of turns in it; 0 where a checkpoint covers everything. */
  readonly number: number;
  readonly turns: number;
  /** True if replies have left for turns that could not be written. */
  readonly unwrittenReplies: boolean;
}

/** Disk access of the journal; tests replace it by one that fails. */
export interface JournalDisk {
  create(path: string, head: TurnFileHead): Pick<TurnFile, 'write' | 'close'>;
  /**
   * Adds turns to a file that only this function writes, without blocking.
   * @returns how long it took, in milliseconds
   */
  writeLater(path: string, head: TurnFileHead, turns: readonly Turn[]): Promise<number>;
  /** Closes what `writeLater` opened. */
  close(): void;
}

/** The file system, with a thread for late writes. */
export function journalDisk(folder: string): JournalDisk {
  let thread: DatabaseThread | undefined;
  return {
    create: (path, head) => new TurnFile(path, head),
    writeLater(path, head, turns) {
      thread ??= new DatabaseThread({ folder });
      return thread.write('writeTurns', path, head, turns);
    },
    close: () => void thread?.close(),
  };
}

export function journalFolder(data: string): string {
  return join(data, JOURNAL_FOLDER);
}

/** All files of a journal in creation order. */
export function listJournal(folder: string): JournalFile[] {
  mkdirSync(folder, { recursive: true, mode: PRIVATE_FOLDER });
  const files: JournalFile[] = [];
  for (const name of readdirSync(folder).sort()) {
    const match = NAME.exec(name);
    if (!match) continue;
    const bytes = sizeOf(join(folder, name)) + sizeOf(join(folder, `${name}-wal`));
    const isTurns = match[2] === TURNS;
    files.push({ name, number: Number(match[1]), isTurns, bytes });
  }
  return files;
}

export function turnFileName(number: number): string {
  return `${String(number).padStart(NUMBER_DIGITS, '0')}-${TURNS}-0.journal`;
}

/** @returns undefined where there is no readable one */
export function readState(folder: string): JournalState | undefined {
  try {
    const bytes = readFileSync(join(folder, STATE_FILE));
    if (bytes.length !== STATE_BYTES) return undefined;
    return {
      number: bytes.readDoubleLE(0),
      turns: bytes.readDoubleLE(8),
      unwrittenReplies: bytes[UNWRITTEN_AT] !== 0,
    };
  } catch {
    return undefined;
  }
}

interface OwnFile {
  readonly number: number;
  readonly path: string;
  readonly head: TurnFileHead;
  /** Bytes of its turns. */
  bytes: number;
  /** Least number of its turns. */
  turns: number;
  /** Open in this thread; undefined where another thread writes it. */
  readonly open: Pick<TurnFile, 'write' | 'close'> | undefined;
  /** True while a late write to it is in progress. */
  busy: boolean;
  /** True if a checkpoint covers it. */
  released: boolean;
}

/** Writes the files of the journal, one after another. It throws errors of the system and of SQLite. */
export class JournalFiles {
  readonly #folder: string;
  readonly #synced: boolean;
  readonly #disk: JournalDisk;
  /** Oldest first; the last one is being written where `#isOpen`. */
  readonly #files: OwnFile[] = [];
  readonly #state = Buffer.alloc(STATE_BYTES);
  #stateFile: number | undefined;
  /** State left by an earlier process; undefined when a checkpoint covers everything it wrote. */
  #earlier: JournalState | undefined;
  /** True while turns that were acknowledged could not be written. */
  #unwritten = false;
  #isOpen = false;
  /** Number of the next file. */
  next: number;
  /** Files of earlier processes. */
  readonly inherited: JournalFile[];
  /** Names of those that were not read to their end: they are kept under another name. */
  readonly #damaged = new Set<string>();
  /** Bytes of the written turns, and of the files of earlier processes. */
  bytes: number;

  constructor(folder: string, synced: boolean, disk: JournalDisk = journalDisk(folder)) {
    this.#folder = folder;
    this.#synced = synced;
    this.#disk = disk;
    this.inherited = listJournal(folder);
    this.#earlier = readState(folder);
    this.bytes = this.inherited.reduce((sum, { bytes }) => sum + bytes, 0);
    this.next = this.inherited.reduce((highest, { number }) => Math.max(highest, number), 0) + 1;
  }

  /**
   * Adds turns, all or none, blocking the event loop.
   * @returns how long it took, without making a file, in milliseconds
   */
  write(turns: readonly Turn[]): number {
    const file = this.#current(false);
    const begun = performance.now();
    file.open!.write(turns);
    this.#wrote(file, turns);
    return performance.now() - begun;
  }

  /**
   * The same without blocking; one call at a time.
   * @returns how long it took, in milliseconds
   */
  async writeLater(turns: readonly Turn[]): Promise<number> {
    const file = this.#current(true);
    file.busy = true;
    try {
      const ms = await this.#disk.writeLater(file.path, file.head, turns);
      this.#wrote(file, turns);
      return ms;
    } finally {
      file.busy = false;
      if (file.released) this.#remove(file);
    }
  }

  #current(late: boolean): OwnFile {
    const newest = this.#files.at(-1);
    if (newest && this.#isOpen && (newest.open === undefined) === late) return newest;
    this.leave();
    // A disk that accepts no writes leaves one empty file behind, not one for each attempt.
    if (newest?.turns === 0 && !newest.busy) this.#remove(newest);
    const number = this.next;
    const last = this.#files.at(-1) ?? this.#earlier;
    const after = last && last.number > 0 && { number: last.number, turns: last.turns };
    const head = { format: TURN_FILE_FORMAT, boot: bootId(), synced: this.#synced, ...(after && { after }) };
    const path = join(this.#folder, turnFileName(number));
    this.#openState();
    const open = late ? undefined : this.#disk.create(path, head);
    const file = { number, path, head, bytes: 0, turns: 0, open, busy: false, released: false };
    this.#files.push(file);
    this.#isOpen = true;
    this.next++;
    return file;
  }

  #wrote(file: OwnFile, turns: readonly Turn[]): void {
    file.turns += turns.length;
    const bytes = turns.reduce((sum, { records }) => sum + records.length, 0);
    file.bytes += bytes;
    this.bytes += bytes;
    if (file.released || file !== this.#files.at(-1)) return;
    this.#state.writeDoubleLE(file.number, 0);
    this.#state.writeDoubleLE(file.turns, 8);
    this.#unwritten = false;
    this.#state[UNWRITTEN_AT] = this.#earlier?.unwrittenReplies ? 1 : 0;
    this.#writeState();
  }

  /** Records that replies leave for turns that could not be written. */
  noteUnwritten(): void {
    this.#unwritten = true;
    if (this.#state[UNWRITTEN_AT] === 1) return;
    this.#state[UNWRITTEN_AT] = 1;
    this.#writeState();
  }

  #openState(): void {
    if (this.#stateFile !== undefined) return;
    const path = join(this.#folder, STATE_FILE);
    closeSync(openSync(path, 'a', PRIVATE_FILE));
    this.#stateFile = openSync(path, 'r+', PRIVATE_FILE);
    if (this.#earlier?.unwrittenReplies) this.#state[UNWRITTEN_AT] = 1;
  }

  /**
   * Without it only the loss of a file's end would be overlooked; the fault that prevents writing it is reported
   * anyway.
   */
  #writeState(): void {
    try {
      if (this.#stateFile !== undefined) writeSync(this.#stateFile, this.#state, 0, STATE_BYTES, 0);
    } catch {
      // The disk may be read-only.
    }
  }

  /** Keeps the files with these faults when they are released. */
  keepDamaged(faults: readonly JournalFault[]): void {
    for (const { kind, file } of faults) if (KEPT.has(kind)) this.#damaged.add(file);
  }

  /** The next write begins another file. */
  leave(): void {
    this.#isOpen = false;
  }

  /**
   * Begins a new file with the next turns.
   * @returns argument for `release`, once a checkpoint covers everything recorded until now
   */
  rotate(): number {
    this.leave();
    return this.next;
  }

  /**
   * Deletes the files before a mark of `rotate`, and those of earlier processes; of these it keeps damaged ones.
   * @throws Error of the system where one cannot be deleted; the next call tries again
   */
  release(mark: number): void {
    const covered = this.#files.filter(file => file.number < mark);
    const newest = this.#files.at(-1);
    const leavesNone = newest ? covered.includes(newest) : this.inherited.length > 0;
    this.#releaseInherited();
    if (leavesNone) {
      this.leave();
      this.#state.fill(0, 0, UNWRITTEN_AT);
      this.#openState();
      this.#writeState();
    }
    for (const file of covered) {
      file.released = true;
      if (!file.busy) this.#remove(file);
    }
  }

  #releaseInherited(): void {
    for (let [file] = this.inherited; file; [file] = this.inherited) {
      const path = join(this.#folder, file.name);
      if (this.#damaged.has(file.name)) setAside(path);
      else removeFile(path);
      for (const name of readdirSync(this.#folder))
        if (MARK.exec(name)?.[1] === file.name) remove(join(this.#folder, name));
      this.inherited.shift();
      this.bytes -= file.bytes;
    }
    if (this.#earlier?.unwrittenReplies && !this.#unwritten) this.#state[UNWRITTEN_AT] = 0;
    this.#earlier = undefined;
  }

  #remove(file: OwnFile): void {
    file.open?.close();
    removeFile(file.path);
    this.#files.splice(this.#files.indexOf(file), 1);
    this.bytes -= file.bytes;
  }

  close(): void {
    this.leave();
    for (const { open } of this.#files) open?.close();
    if (this.#stateFile !== undefined) closeSync(this.#stateFile);
    this.#stateFile = undefined;
    this.#disk.close();
  }
}

/** Deletes a file with those that SQLite keeps next to it. */
function removeFile(path: string): void {
  for (const suffix of ['', '-wal', '-shm']) remove(path + suffix);
}

/** Renames a file with those that SQLite keeps next to it, so that it is no part of the journal. */
function setAside(path: string): void {
  const aside = `${path}.damaged-${new Date().toISOString().replaceAll(/[:.]/g, '-')}`;
  for (const suffix of ['', '-wal', '-shm'])
    if (existsSync(path + suffix)) renameSync(path + suffix, aside + suffix);
}

function remove(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

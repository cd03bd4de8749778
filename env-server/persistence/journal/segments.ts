import { randomInt } from 'node:crypto';
import {
  closeSync,
  fsync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  statSync,
  unlinkSync,
  write,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { PRIVATE_FILE, PRIVATE_FOLDER } from '../private-files.ts';

/** Folder of the journal within that of the database. */
export const JOURNAL_FOLDER = 'journal';

const NUMBER_DIGITS = 10;
/** Number of starts within one millisecond that get different names. */
const RUN_CHOICES = 2 ** 32;
const NAME = /^(\d{10})-([0-9a-z]{1,32})-(\d{1,3})\.journal$/;
const MARK = /^(\d{10}-[0-9a-z]{1,32}-\d{1,3}\.journal)\.(\d{1,3})of(\d{1,3})$/;

/** Which process of which start of the server writes. */
export interface JournalWriter {
  /** Id of the server's start, the same for all of its processes: digits and small letters. */
  readonly run: string;
  /** Index of the process among those that serve together, and how many they are. */
  readonly index: number;
  readonly count: number;
}

/** A name for a start of the server, unlike those of earlier ones. */
export function newRun(): string {
  return Date.now().toString(36) + randomInt(RUN_CHOICES).toString(36);
}

/** A file of the journal: `<number>-<run>-<index>.journal`. */
export interface Segment {
  readonly name: string;
  /** A later segment of the same process has a higher one, and so has every segment of a later run. */
  readonly number: number;
  readonly run: string;
  readonly index: number;
  readonly bytes: number;
}

/** The calls to the file system that the journal makes; tests replace them by ones that fail. */
export interface JournalFiles {
  /** Makes a file for writing; fails where there is one. */
  create(path: string): number;
  /** Sets the size of a file; what is added reads as 0. */
  extend(file: number, bytes: number): void;
  /** @returns bytes written, maybe fewer than asked */
  write(file: number, bytes: Buffer, offset: number, length: number, position: number): number;
  /** The same without waiting for the disk. */
  writeLater(
    file: number,
    bytes: Buffer,
    offset: number,
    position: number,
    done: (error: Error | null, count: number) => void,
  ): void;
  sync(file: number, done: (error: Error | null) => void): void;
  syncNow(file: number): void;
  /** A new file survives the machine only when its folder is synced, too. */
  syncFolder(path: string): void;
  close(file: number): void;
  /** Changes the first byte of a file that is not open. */
  mark(path: string, byte: number): void;
  remove(path: string): void;
}

export const FILE_SYSTEM: JournalFiles = {
  create: path => openSync(path, 'wx', PRIVATE_FILE),
  extend: ftruncateSync,
  write: writeSync,
  writeLater: (file, bytes, offset, position, done) =>
    write(file, bytes, offset, bytes.length - offset, position, done),
  sync: fsync,
  syncNow: fsyncSync,
  syncFolder(path) {
    const folder = openSync(path, 'r');
    try {
      fsyncSync(folder);
    } finally {
      closeSync(folder);
    }
  },
  close: closeSync,
  mark(path, byte) {
    const file = openSync(path, 'r+');
    try {
      writeSync(file, Buffer.of(byte), 0, 1, 0);
    } finally {
      closeSync(file);
    }
  },
  remove: unlinkSync,
};

export function journalFolder(data: string): string {
  return join(data, JOURNAL_FOLDER);
}

export function segmentName(number: number, { run, index }: JournalWriter): string {
  return `${String(number).padStart(NUMBER_DIGITS, '0')}-${run}-${index}.journal`;
}

/** All segments of a journal in the order in which they were begun; those of other files are passed over. */
export function listSegments(folder: string): Segment[] {
  mkdirSync(folder, { recursive: true, mode: PRIVATE_FOLDER });
  const segments: Segment[] = [];
  for (const name of readdirSync(folder).sort()) {
    const match = NAME.exec(name);
    if (!match) continue;
    const [, number, run, index] = match;
    const stat = statSync(join(folder, name), { throwIfNoEntry: false });
    if (stat) segments.push({ name, number: Number(number), run, index: Number(index), bytes: stat.size });
  }
  return segments;
}

/** The number of the next segment of a process: above all that are there. */
export function nextNumber(folder: string): number {
  return listSegments(folder).reduce((highest, { number }) => Math.max(highest, number), 0) + 1;
}

/**
 * Segments that may hold records of this process's sessions: those of earlier runs, written by any process, and
 * its own of this run. What other processes of this run have written is theirs.
 */
export function inheritedSegments(folder: string, { run, index }: JournalWriter): Segment[] {
  return listSegments(folder).filter(segment => segment.run !== run || segment.index === index);
}

/**
 * Notes that this process needs these segments no more, as a checkpoint covers its part of them. Deletes those of its
 * own run, and those of earlier runs when all processes have noted this.
 */
export function dropSegments(folder: string, segments: readonly Segment[], writer: JournalWriter): void {
  const { run, index, count } = writer;
  for (const { name, run: owner } of segments) {
    if (owner !== run) {
      closeSync(openSync(join(folder, `${name}.${index}of${count}`), 'w', PRIVATE_FILE));
      if (!markedByAll(folder, name, count)) continue;
    }
    remove(join(folder, name));
    for (const file of readdirSync(folder)) {
      const match = MARK.exec(file);
      if (match?.[1] === name) remove(join(folder, file));
    }
  }
}

function markedByAll(folder: string, name: string, count: number): boolean {
  const marks = new Set<string>();
  for (const file of readdirSync(folder)) {
    const match = MARK.exec(file);
    if (match?.[1] === name && Number(match[3]) === count) marks.add(match[2]);
  }
  return marks.size === count;
}

/** Another process may have been quicker. */
function remove(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

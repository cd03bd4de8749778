import { closeSync, constants, fstatSync, openSync, readSync, writeSync } from 'node:fs';
import { atEnd } from '../../shared/closing.ts';
import { copyTrainerLog } from '../../shared/log.ts';
import { replaceFileSync } from '../../shared/replace-file.ts';
import { printableLines } from '../../shared/text.ts';
import { both, type Progress, plainProgress } from './progress.ts';

/** A file that would grow beyond this loses its older half. */
const MAX_BYTES = 2 ** 20;
const MAX_LINE_LENGTH = 8192;
/** Lines that wait for the run's folder; earlier ones are dropped. */
const MAX_EARLY_LINES = 1000;
const NEWLINE = 0x0a;
/** Creates the file, but follows no link and waits for no pipe. */
const FLAGS =
  constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/**
 * `log.txt` of a run folder: lines with their time, from before the folder exists to the error that ends the process.
 * A failed write loses lines, which the file counts later, and never ends the run.
 */
export class RunLog {
  readonly #warn: (text: string) => void;
  readonly #now: () => number;
  #file: string | undefined;
  #early: string[] = [];
  /** Lines that could not be written since the last one that could. */
  #lost = 0;
  #lastWords = (error: Error) => this.write(error.stack ?? error.message);
  #warning = ({ name, message }: Error) => this.write(`${name}: ${message}`);

  /** @param warn called when a write fails, once until the next one succeeds */
  constructor(warn: (text: string) => void, now: () => number = Date.now) {
    this.#warn = warn;
    this.#now = now;
    process.on('uncaughtExceptionMonitor', this.#lastWords);
    process.on('warning', this.#warning);
    copyTrainerLog(line => this.write(line.trimEnd()));
  }

  /** Appends to this file from now on, first what came before. */
  open(file: string): void {
    this.#file = file;
    const early = this.#early;
    this.#early = [];
    if (early.length > 0) this.#append(early);
  }

  /** A text of one or several lines. */
  write(text: string): void {
    const time = new Date(this.#now()).toISOString();
    const lines = printableLines(text)
      .split('\n')
      .map(line => `${time} ${shortened(line)}\n`);
    if (this.#file !== undefined) this.#append(lines);
    else this.#early = [...this.#early, ...lines].slice(-MAX_EARLY_LINES);
  }

  /** Shows progress, and writes each line that a file would get on standard error. */
  logged(shown: Progress): Progress {
    return both(shown, plainProgress({ write: text => this.write(text.trimEnd()) }, this.#now));
  }

  [Symbol.dispose](): void {
    process.off('uncaughtExceptionMonitor', this.#lastWords);
    process.off('warning', this.#warning);
    copyTrainerLog(undefined);
  }

  #append(lines: readonly string[]): void {
    const file = this.#file!;
    const lost = this.#lost;
    const time = new Date(this.#now()).toISOString();
    const gap = lost === 0 ? '' : `${time} lines that could not be written here: ${lost}\n`;
    try {
      appendBounded(file, gap + lines.join(''));
      this.#lost = 0;
    } catch (error) {
      this.#lost += lines.length;
      if (lost > 0) return;
      this.#warn(`${file} cannot be written (${(error as Error).message}); the run continues without`);
    }
  }
}

function shortened(line: string): string {
  const rest = line.length - MAX_LINE_LENGTH;
  return rest > 0 ? `${line.slice(0, MAX_LINE_LENGTH)}… (${rest} characters more)` : line;
}

/** @throws Error of the file system, and Error where the file is not a regular one */
function appendBounded(file: string, text: string): void {
  const opened = openSync(file, FLAGS, 0o666);
  using _opened = atEnd(() => closeSync(opened));
  const stats = fstatSync(opened);
  if (!stats.isFile()) throw new Error('it is not a regular file');
  // A killed process or a full disk leaves half a line.
  const last = Buffer.alloc(1, NEWLINE);
  if (stats.size > 0) readSync(opened, last, 0, 1, stats.size - 1);
  const bytes = Buffer.from(last[0] === NEWLINE ? text : `\n${text}`);
  if (stats.size + bytes.length > MAX_BYTES) replaceFileSync(file, newerHalf(opened, stats.size, bytes));
  else for (let done = 0; done < bytes.length; ) done += writeSync(opened, bytes, done);
}

/** Whole lines from the end of a file and what is added to it. */
function newerHalf(opened: number, size: number, added: Buffer): string {
  const half = MAX_BYTES / 2;
  const old = Buffer.alloc(Math.min(size, half));
  const read = readSync(opened, old, 0, old.length, size - old.length);
  const bytes = Buffer.concat([old.subarray(0, read), added]).subarray(-half);
  return bytes.subarray(bytes.indexOf(NEWLINE) + 1).toString();
}

import { type LogLine, RUN_FILES } from '../../../shared/run-folder/run-files.ts';
import { printable, withoutCredentials } from '../../../shared/text.ts';
import { type Line, readLines } from './lines.ts';
import { type FoundRun, openRunFile } from './run-folders.ts';

/** Lines that a page shows. */
const MAX_LINES = 200;
/** Characters of a line, so that the tail stays small enough for a live page. */
const MAX_LINE_LENGTH = 1000;
const MAX_LINE_BYTES = 64 * 1024;
/** Bytes from the end of the file in which the lines are looked for. */
const MAX_TAIL_BYTES = 256 * 1024;
const TIMED = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) /;

/** New lines of a log. */
export interface LogNews {
  readonly lines: readonly LogLine[];
  /** True if earlier lines count no more. */
  readonly whole: boolean;
}

/** The last lines of `log.txt`, read once and from then on only what was appended. */
export class LogTail {
  readonly #run: FoundRun;
  #lines: readonly LogLine[] = [];
  #offset = 0;
  #inode: number | undefined;

  constructor(run: FoundRun) {
    this.#run = run;
  }

  get lines(): readonly LogLine[] {
    return this.#lines;
  }

  /** Reads what was written since; undefined where nothing was. A log that is gone keeps its lines. */
  async refresh(): Promise<LogNews | undefined> {
    await using file = await openRunFile(this.#run, RUN_FILES.log);
    if (!file) return undefined;
    const { size, ino } = file.stats;
    const whole = ino !== this.#inode || size < this.#offset || size - this.#offset > MAX_TAIL_BYTES;
    if (!whole && size === this.#offset) return undefined;
    const from = whole ? Math.max(0, size - MAX_TAIL_BYTES) : this.#offset;
    const found: LogLine[] = [];
    this.#offset = await readLines(file.handle, from, MAX_LINE_BYTES, line => {
      // The first one may be half a line.
      if (line.start === from && whole && from > 0) return;
      found.push(logLine(line));
      if (found.length > 2 * MAX_LINES) found.splice(0, MAX_LINES);
    });
    this.#inode = ino;
    const lines = found.slice(-MAX_LINES);
    this.#lines = whole ? lines : [...this.#lines, ...lines].slice(-MAX_LINES);
    return whole || lines.length > 0 ? { lines, whole } : undefined;
  }
}

function logLine({ bytes, start, end }: Line): LogLine {
  if (!bytes) return { at: start, time: '', text: `(a line of ${end - start} bytes)` };
  const line = bytes.toString('utf8');
  const time = TIMED.exec(line)?.[1] ?? '';
  const text = printable(withoutCredentials(time === '' ? line : line.slice(time.length + 1)));
  const rest = text.length - MAX_LINE_LENGTH;
  const shown = rest > 0 ? `${text.slice(0, MAX_LINE_LENGTH)}… (${rest} characters more)` : text;
  return { at: start, time, text: shown };
}

import type { LogLevel } from '../../shared/log.ts';
import { printableLines } from '../../shared/text.ts';

/** Seconds between two plain lines of a stage that is not finished. */
const PLAIN_INTERVAL_S = 5;
/** Milliseconds between two drawings of the bar. */
const BAR_INTERVAL_MS = 100;
const BAR_CELLS = 24;
const MIN_BAR_CELLS = 8;
const EIGHTHS = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
const SEPARATOR = ' · ';
const DEFAULT_COLUMNS = 80;
const GREEN = '\x1b[32m';
const DIM = '\x1b[2;39m';
const PLAIN = '\x1b[0m';
const CLEAR_REST = '\x1b[K';
const HIDE_CURSOR = '\x1b[?25l';
const SHOW_CURSOR = '\x1b[?25h';

/** Shows the progress of a run. Stages follow one another; notes appear between them. */
export interface Progress {
  /** A stage of `total` units begins at unit `done`. */
  begin(stage: string, total: number, done: number): void;
  /** Shows `numbers` unchanged, in this order. */
  update(done: number, numbers: { readonly [label: string]: string }): void;
  end(): void;
  /** Prints a permanent line with something the user should know. */
  note(text: string): void;
  /** Prints a permanent line about a failure that the run survives. */
  warn(text: string): void;
}

export interface ProgressStream {
  readonly isTTY?: boolean;
  /** Width of the terminal. */
  readonly columns?: number;
  hasColors?(): boolean;
  write(text: string): unknown;
}

/**
 * A bar on a terminal, plain lines elsewhere (one every few seconds and one at the end of a stage). Below `info` only
 * warnings are shown, below `warn` nothing; with `debug` lines stay plain, because log lines appear between them.
 */
export function openProgress(stream: ProgressStream, level: LogLevel = 'info'): Progress {
  if (level === 'silent' || level === 'error') return silentProgress;
  if (level === 'warn') return { ...silentProgress, warn: plainProgress(stream).warn };
  return stream.isTTY && level !== 'debug' ? barProgress(stream) : plainProgress(stream);
}

const each =
  <Args extends unknown[]>(...calls: readonly ((...args: Args) => void)[]) =>
  (...args: Args): void => {
    for (const call of calls) call(...args);
  };

/** Progress that goes to two places. */
export const both = (one: Progress, other: Progress): Progress => ({
  begin: each(one.begin, other.begin),
  update: each(one.update, other.update),
  end: each(one.end, other.end),
  note: each(one.note, other.note),
  warn: each(one.warn, other.warn),
});

/** Shows nothing. */
export const silentProgress: Progress = { begin() {}, update() {}, end() {}, note() {}, warn() {} };

export function plainProgress(stream: ProgressStream, now: () => number = Date.now): Progress {
  let stage = '';
  let total = 0;
  let written = 0;
  let waiting: string | undefined;
  const line = (text: string) => void stream.write(`${printableLines(text)}\n`);
  return {
    begin(name, units) {
      stage = name;
      total = units;
      written = Number.NEGATIVE_INFINITY;
      waiting = undefined;
    },
    update(done, numbers) {
      waiting = `${[`${stage} ${done}/${total}`, ...labelled(numbers)].join(SEPARATOR)}\n`;
      if (now() - written < PLAIN_INTERVAL_S * 1000 && done < total) return;
      stream.write(waiting);
      written = now();
      waiting = undefined;
    },
    end() {
      if (waiting !== undefined) stream.write(waiting);
      waiting = undefined;
    },
    note: line,
    warn: line,
  };
}

function barProgress(stream: ProgressStream): Progress {
  let at: { stage: string; total: number; done: number; numbers: readonly string[] } | undefined;
  let drawnAt = Number.NEGATIVE_INFINITY;
  const colored = hasColors(stream);
  const draw = () => {
    if (!at) return;
    const { stage, total, done, numbers } = at;
    const progress = total > 0 ? done / total : 1;
    const columns = stream.columns ?? DEFAULT_COLUMNS;
    stream.write(
      `\r${barLine({ progress, value: done, total, stage, numbers, columns, colored })}${CLEAR_REST}`,
    );
    drawnAt = performance.now();
  };
  const end = () => {
    if (!at) return;
    draw();
    stream.write(`\n${SHOW_CURSOR}`);
    at = undefined;
  };
  const line = (text: string) => {
    stream.write(`\r${CLEAR_REST}${printableLines(text)}\n`);
    draw();
  };
  return {
    begin(stage, total, done) {
      end();
      at = { stage, total, done, numbers: [] };
      stream.write(HIDE_CURSOR);
      draw();
    },
    update(done, numbers) {
      if (!at) return;
      at = { ...at, done, numbers: labelled(numbers) };
      if (performance.now() - drawnAt >= BAR_INTERVAL_MS) draw();
    },
    end,
    note: line,
    warn: line,
  };
}

/** Contents of a line with a bar. */
export interface BarLine {
  /** Finished share, from 0 to 1. */
  readonly progress: number;
  readonly value: number;
  readonly total: number;
  readonly stage: string;
  /** The most important first. */
  readonly numbers: readonly string[];
  /** Width of the terminal. */
  readonly columns: number;
  readonly colored: boolean;
}

/**
 * A line with a bar of blocks. A short line loses the last numbers first, then the bar shrinks, then stage and count
 * go; the first number stays.
 */
export function barLine({ progress, value, total, stage, numbers, columns, colored }: BarLine): string {
  const head = stage === '' ? '' : `${stage} `;
  const count = ` ${value}/${total}`;
  const room = Math.max(0, columns - 1);
  const fixed = (shown: number, cells: number) =>
    head.length +
    cells +
    count.length +
    numbers.slice(0, shown).reduce((sum, text) => sum + SEPARATOR.length + text.length, 0);
  let shown = numbers.length;
  let cells = BAR_CELLS;
  while (shown > 1 && fixed(shown, MIN_BAR_CELLS) > room) shown--;
  while (cells > 0 && fixed(shown, cells) > room) cells--;
  if (numbers.length > 0 && fixed(shown, cells) > room) return numbers[0].slice(0, room);
  const text = [count, ...numbers.slice(0, shown)].join(SEPARATOR);
  return `${head}${blocks(progress, cells, colored)}${text}`.trimEnd();
}

/** A bar of this many cells, filled to an eighth of a cell. */
function blocks(progress: number, cells: number, colored: boolean): string {
  const eighths = Math.round(8 * cells * Math.min(1, Math.max(0, progress)));
  const full = Math.floor(eighths / 8);
  const part = EIGHTHS[eighths % 8];
  const done = '█'.repeat(full) + part;
  const left = '░'.repeat(Math.max(0, cells - full - part.length));
  return colored ? `${GREEN}${done}${DIM}${left}${PLAIN}` : done + left;
}

/** True if a terminal shows colors; false where the user sets `NO_COLOR` (https://no-color.org). */
function hasColors(stream: ProgressStream): boolean {
  return !process.env.NO_COLOR && (stream.hasColors?.() ?? false);
}

function labelled(numbers: { readonly [label: string]: string }): string[] {
  return Object.entries(numbers).map(([label, value]) => `${label} ${value}`);
}

/** `1 h 02 min`, `3 min 20 s` or `45 s`. */
export function shownDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole >= 3600)
    return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, '0')} min`;
  if (whole >= 60) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, '0')} s`;
  return `${whole} s`;
}

/** A return with three significant digits. */
export const shownReturn = (value: number): string => String(Number(value.toPrecision(3)));

/** `0.4 %` to one place below 10, whole above. */
export function shownShare(share: number): string {
  const percent = 100 * share;
  return `${percent < 10 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}

/** `950 B`, `12.3 KiB`, `1.2 GiB`. */
export function shownBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power]}`;
}

/** `950`, `12.3k`, `1.2M`. */
export function shownCount(count: number): string {
  if (count >= 1e6) return `${(count / 1e6).toFixed(1)}M`;
  if (count >= 1e4) return `${(count / 1e3).toFixed(0)}k`;
  if (count >= 1e3) return `${(count / 1e3).toFixed(1)}k`;
  return String(Math.round(count));
}

import { SingleBar } from 'cli-progress';
import type { LogLevel } from '../../shared/log.ts';

/** Seconds between two plain lines of a stage that is not finished. */
const PLAIN_INTERVAL_S = 5;
const BAR = '{stage} [{bar}] {value}/{total} {numbers}';

/** Shows how far a run is. Stages follow one another; notes appear between. */
export interface Progress {
  /** A stage of `total` units begins at unit `done`. */
  begin(stage: string, total: number, done: number): void;
  /** `numbers` are shown as they stand, in this order. */
  update(done: number, numbers: { readonly [label: string]: string }): void;
  end(): void;
  /** A line that stays: something the user should know. */
  note(text: string): void;
  /** A line that stays: something that went wrong and that the run survives. */
  warn(text: string): void;
}

export interface ProgressStream {
  readonly isTTY?: boolean;
  write(text: string): unknown;
}

/**
 * A bar on a terminal, plain lines elsewhere (one every few seconds and one at the end of a stage). Below `info` only
 * warnings are left, below `warn` nothing; with `debug` lines stay plain, as the log writes between them.
 */
export function openProgress(
  stream: ProgressStream & NodeJS.WritableStream,
  level: LogLevel = 'info',
): Progress {
  if (level === 'silent' || level === 'error') return silentProgress;
  if (level === 'warn') return { ...silentProgress, warn: plainProgress(stream).warn };
  return stream.isTTY && level !== 'debug' ? barProgress(stream) : plainProgress(stream);
}

/** Shows nothing. */
export const silentProgress: Progress = { begin() {}, update() {}, end() {}, note() {}, warn() {} };

export function plainProgress(stream: ProgressStream, now: () => number = Date.now): Progress {
  let stage = '';
  let total = 0;
  let written = 0;
  let waiting: string | undefined;
  const line = (text: string) => void stream.write(`${text}\n`);
  return {
    begin(name, units) {
      stage = name;
      total = units;
      written = Number.NEGATIVE_INFINITY;
      waiting = undefined;
    },
    update(done, numbers) {
      waiting = `${stage} ${done}/${total} ${shown(numbers)}\n`;
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

function barProgress(stream: ProgressStream & NodeJS.WritableStream): Progress {
  let bar: SingleBar | undefined;
  let at: { stage: string; total: number; done: number; numbers: string } | undefined;
  const start = () => {
    if (!at) return;
    bar = new SingleBar({
      format: BAR,
      stream,
      hideCursor: true,
      barsize: 24,
      barCompleteChar: '#',
      barIncompleteChar: '-',
      gracefulExit: false,
    });
    bar.start(at.total, at.done, { stage: at.stage, numbers: at.numbers });
  };
  const stop = () => {
    bar?.stop();
    bar = undefined;
  };
  const line = (text: string) => {
    stop();
    stream.write(`\r\x1b[K${text}\n`);
    start();
  };
  return {
    begin(stage, total, done) {
      stop();
      at = { stage, total, done, numbers: '' };
      start();
    },
    update(done, numbers) {
      if (!at) return;
      at = { ...at, done, numbers: shown(numbers) };
      bar?.update(done, { stage: at.stage, numbers: at.numbers });
    },
    end() {
      stop();
      at = undefined;
    },
    note: line,
    warn: line,
  };
}

function shown(numbers: { readonly [label: string]: string }): string {
  return Object.entries(numbers)
    .map(([label, value]) => `${label} ${value}`)
    .join(' · ');
}

/** `1 h 02 min`, `3 min 20 s` or `45 s`. */
export function shownDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole >= 3600)
    return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, '0')} min`;
  if (whole >= 60) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, '0')} s`;
  return `${whole} s`;
}

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

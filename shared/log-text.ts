import pino, { type Logger } from 'pino';
import type { LogLevel } from './log.ts';
import { LogOutput } from './log-output.ts';
import { printable } from './text.ts';

const LEVELS: { readonly [level: number]: string } = {
  20: 'debug',
  30: 'info',
  40: 'warning',
  50: 'error',
  60: 'fatal',
};
const WARNING = 40;

/** The fields of a log record that people read. */
export interface LogText {
  readonly text: string;
  /** True for warnings and errors. */
  readonly isWarning: boolean;
}

/** Turns a JSON line of pino into one readable line with level and message; undefined for any other line. */
export function readLogLine(line: string): LogText | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    const record = JSON.parse(line) as { level?: unknown; msg?: unknown; err?: { message?: unknown } };
    if (typeof record.level !== 'number') return undefined;
    const message = [record.msg, record.err?.message].filter(part => typeof part === 'string');
    const text = printable(`${LEVELS[record.level] ?? record.level}: ${[...new Set(message)].join(': ')}`);
    return { text, isWarning: record.level >= WARNING };
  } catch {
    return undefined;
  }
}

let output: LogOutput | undefined;

/** A log on standard output: JSON lines for programs, text on a terminal. */
export function outputLog(level: LogLevel): Logger {
  output ??= new LogOutput(process.stdout);
  const lines = output;
  if (!process.stdout.isTTY) return pino({ level }, lines);
  return pino({ level }, { write: line => lines.write(`${readLogLine(line)?.text ?? line.trimEnd()}\n`) });
}

import pino, { type Logger } from 'pino';

export const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Sets the log level of this process and of the processes it starts. */
export const LOG_LEVEL_VARIABLE = 'RAGEN_LOG_LEVEL';

let log: Logger | undefined;
let copy: ((line: string) => void) | undefined;

/**
 * The trainer's log as JSON lines on standard error. {@link LOG_LEVEL_VARIABLE} sets the level when the first record is
 * written. Without the variable nothing is logged, for example in a process that uses the client as a library.
 * @throws RangeError listing the levels where the variable holds another word
 */
export function trainerLog(): Logger {
  log ??= openLog();
  return log;
}

function openLog(): Logger {
  const output = pino.destination({ fd: 2, sync: true });
  const write = (line: string) => {
    output.write(line);
    copy?.(line);
  };
  return pino({ level: readLogLevel() ?? 'silent', base: { pid: process.pid } }, { write });
}

/** Hands every further line of {@link trainerLog} also to `write`; undefined ends that. */
export function copyTrainerLog(write: ((line: string) => void) | undefined): void {
  copy = write;
}

/** @throws RangeError listing the levels where the variable holds another word */
export function readLogLevel(): LogLevel | undefined {
  const word = process.env[LOG_LEVEL_VARIABLE];
  if (word === undefined || word === '') return undefined;
  const level = LOG_LEVELS.find(name => name === word);
  if (level === undefined) {
    throw new RangeError(`${LOG_LEVEL_VARIABLE}: got "${word}"; valid: ${LOG_LEVELS.join(', ')}`);
  }
  return level;
}

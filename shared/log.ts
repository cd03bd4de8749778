import pino, { type Logger } from 'pino';

export const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Sets the log level of this process and of the processes it starts. */
export const LOG_LEVEL_VARIABLE = 'RAGEN_LOG_LEVEL';

let log: Logger | undefined;

/**
 * The trainer's log as JSON lines on standard error. {@link LOG_LEVEL_VARIABLE} sets the level when the first record is
 * written. Without the variable nothing is logged, for example in a process that uses the client as a library.
 * @throws RangeError listing the levels where the variable holds another word
 */
export function trainerLog(): Logger {
  log ??= pino(
    { level: readLogLevel() ?? 'silent', base: { pid: process.pid } },
    pino.destination({ fd: 2, sync: true }),
  );
  return log;
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

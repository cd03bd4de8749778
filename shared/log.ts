import pino, { type Logger } from 'pino';

export const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Sets the level of a process and of those that it starts. */
export const LOG_LEVEL_VARIABLE = 'RAGEN_LOG_LEVEL';

let log: Logger | undefined;

/**
 * What the trainer does, as JSON lines on standard error, from the level on that {@link LOG_LEVEL_VARIABLE} names when
 * the first record is due. A process without the variable, such as one that uses the client as a library, logs nothing.
 * @throws RangeError naming the levels where the variable holds another word
 */
export function trainerLog(): Logger {
  log ??= pino(
    { level: readLogLevel() ?? 'silent', base: { pid: process.pid } },
    pino.destination({ fd: 2, sync: true }),
  );
  return log;
}

/** @throws RangeError naming the levels where the variable holds another word */
export function readLogLevel(): LogLevel | undefined {
  const word = process.env[LOG_LEVEL_VARIABLE];
  if (word === undefined || word === '') return undefined;
  const level = LOG_LEVELS.find(name => name === word);
  if (level === undefined) {
    throw new RangeError(`${LOG_LEVEL_VARIABLE}: got "${word}"; valid: ${LOG_LEVELS.join(', ')}`);
  }
  return level;
}

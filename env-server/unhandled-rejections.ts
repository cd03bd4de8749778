import type { Logger } from 'pino';

/**
 * Lets the process outlive promises that fail without anybody waiting for them. Each is a fault of this program, and is
 * logged as one; it has ended what it was part of, and Node would end everybody's sessions with it. What is thrown and
 * not caught still ends the process: it may have left anything half done.
 */
export function outliveRejections(log: Logger): void {
  process.on('unhandledRejection', reason => {
    log.error({ err: reason }, 'a promise failed that nobody waited for');
  });
}

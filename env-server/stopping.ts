import type { Logger } from 'pino';
import type { App } from './app.ts';
import type { Settings } from './config/settings.ts';

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

const MS_PER_S = 1000;
/** Milliseconds that the server gets to close after the last operation. */
const CLOSE_MS = 10_000;

/** Ends a server and its process in order: it drains, finishes, stores its sessions. A second call only stores them. */
export function stopperOf(
  { log, sessions, shutDown, keepSessions }: App,
  settings: Pick<Settings, 'graceSeconds' | 'drainSeconds'>,
): (reason: string) => void {
  let stopping = false;
  return reason => {
    if (stopping) {
      keepSessions();
      process.exit(1);
    }
    stopping = true;
    log.info(`${reason}: draining`);
    sessions.shutdown.drain();
    setTimeout(() => {
      const graceMs = settings.graceSeconds * MS_PER_S;
      setTimeout(() => process.exit(1), graceMs + CLOSE_MS).unref();
      shutDown(graceMs).then(
        () => process.exit(0),
        error => {
          log.error({ err: error }, 'the server could not be closed in order');
          process.exit(1);
        },
      );
    }, settings.drainSeconds * MS_PER_S);
  };
}

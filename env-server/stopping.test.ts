import { pino } from 'pino';
import t from 'tap';
import type { App } from './app.ts';
import type { SessionManager } from './sessions/manager.ts';
import { stopperOf } from './stopping.ts';

t.test('a server that cannot be closed in order says so and ends', async t => {
  const { exit } = process;
  t.teardown(() => {
    process.exit = exit;
  });
  const ended = new Promise<unknown>(resolve => {
    process.exit = (code => resolve(code)) as typeof process.exit;
  });
  const lines: string[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => lines.push(line) });
  const sessions = { shutdown: { drain: () => undefined } } as SessionManager;
  const shutDown = () => Promise.reject(new Error('it is stuck'));
  const app = { log, sessions, shutDown } as Partial<App> as App;
  stopperOf(app, { graceSeconds: 3600, drainSeconds: 0 })('SIGTERM');
  t.equal(await ended, 1);
  t.match(lines.at(-1), /"message":"it is stuck".*"the server could not be closed in order"/);
});

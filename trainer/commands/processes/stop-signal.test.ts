import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import t from 'tap';
import { stopRequests } from './child-program.ts';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
const source = new URL('./child-program.ts', import.meta.url).href;

/** A program that says when it is asked to stop, and then continues for as long as it is let. */
function stubborn(stdio: 'ipc' | 'ignore') {
  const code = `
    import { stopRequests } from ${JSON.stringify(source)};
    const { signal } = stopRequests(() => console.log('asked'));
    signal.addEventListener('abort', () => console.log(signal.reason.name));
    const timer = setInterval(() => {}, 1000);
    process.once('SIGUSR2', () => clearInterval(timer));
    console.log('ready');`;
  const program = spawn(process.execPath, ['--input-type=module', '--eval', code], {
    stdio: ['ignore', 'pipe', 'inherit', stdio],
  });
  const lines = createInterface({ input: program.stdout! })[Symbol.asyncIterator]();
  const line = async () => (await lines.next()).value as string | undefined;
  return { program, line, ended: once(program, 'exit') };
}

t.test('the first request calls back, and a later one ends the program', async t => {
  const { program, line, ended } = stubborn('ignore');
  t.equal(await line(), 'ready');
  program.kill('SIGINT');
  t.same([await line(), await line()].sort(), ['AbortError', 'asked']);
  const again = setInterval(() => program.kill('SIGTERM'), 100);
  t.same(await ended, [null, 'SIGINT']);
  clearInterval(again);
});

t.test('signals in one burst and the end of the parent are one request', async t => {
  const { program, line, ended } = stubborn('ipc');
  t.equal(await line(), 'ready');
  // Both are pending when the program continues.
  program.kill('SIGSTOP');
  program.kill('SIGINT');
  program.kill('SIGTERM');
  program.disconnect();
  program.kill('SIGCONT');
  t.same([await line(), await line()].sort(), ['AbortError', 'asked']);
  program.kill('SIGUSR2');
  t.same(await ended, [0, null]);
});

t.test('a program is asked to stop when its parent goes away', async t => {
  const { program, line, ended } = stubborn('ipc');
  t.equal(await line(), 'ready');
  program.disconnect();
  t.same([await line(), await line()].sort(), ['AbortError', 'asked']);
  program.kill('SIGKILL');
  await ended;
});

t.test('the channel to its parent does not keep a program that is done', async t => {
  const { program, line, ended } = stubborn('ipc');
  t.equal(await line(), 'ready');
  program.kill('SIGUSR2');
  t.same(await ended, [0, null]);
});

t.test('stop requests that are over listen to nothing', async t => {
  const listeners = () => [...SIGNALS, 'disconnect'].map(name => process.listenerCount(name));
  const before = listeners();
  for (let i = 0; i < 20; i++) {
    using _requests = stopRequests(() => {});
    t.ok(process.listenerCount('SIGINT') > before[0]);
  }
  t.same(listeners(), before);
});

t.test('a program is asked to stop at once where its parent went away while it was loading', async t => {
  const code = `
    import { stopRequests } from ${JSON.stringify(source)};
    console.log('loading');
    const timer = setInterval(() => {
      if (process.connected) return;
      clearInterval(timer);
      const { signal } = stopRequests(() => console.log('asked'));
      setInterval(() => signal.aborted && process.exit(0), 10);
    }, 10);`;
  const program = spawn(process.execPath, ['--input-type=module', '--eval', code], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
  t.teardown(() => program.kill('SIGKILL'));
  const lines = createInterface({ input: program.stdout! })[Symbol.asyncIterator]();
  t.equal((await lines.next()).value, 'loading');
  const ended = once(program, 'exit');
  program.disconnect();
  t.equal((await lines.next()).value, 'asked');
  t.same(await ended, [0, null]);
});

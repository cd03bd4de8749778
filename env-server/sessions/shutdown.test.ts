import { setTimeout as delay } from 'node:timers/promises';
import t from 'tap';
import { Shutdown } from './shutdown.ts';

const GENEROUS_MS = 60_000;
const REFUSED = { code: 'draining', retryAfterSeconds: 1 };

t.test('each stage refuses more', async t => {
  const shutdown = new Shutdown();
  const refuses = (): string[] => {
    const refused: string[] = [];
    for (const what of ['requireOpen', 'requireServing', 'requireRunning'] as const) {
      try {
        shutdown[what]();
      } catch (error) {
        t.match(error, REFUSED);
        refused.push(what);
      }
    }
    return refused;
  };
  t.same(refuses(), []);
  t.notOk(shutdown.draining);
  shutdown.drain();
  t.ok(shutdown.draining);
  t.same(refuses(), ['requireOpen']);
  let finish = (): void => {};
  const under = new Promise<void>(resolve => {
    finish = resolve;
  });
  let asked = 0;
  const suspended = shutdown.suspend(GENEROUS_MS, () => (++asked === 1 ? [under] : []));
  t.same(refuses(), ['requireOpen', 'requireServing'], 'what is in progress may continue');
  finish();
  t.equal(await suspended, 0);
  t.equal(asked, 2, 'it looks again, as one thing may have led to another');
  t.same(refuses(), ['requireOpen', 'requireServing', 'requireRunning']);
  shutdown.drain();
  t.same(refuses().length, 3, 'there is no way back');
});

t.test('shutdown waits up to its limit and counts unfinished operations', async t => {
  const shutdown = new Shutdown();
  const never = new Promise(() => {});
  shutdown.follow(delay(1));
  shutdown.follow(delay(1).then(() => Promise.reject(new Error('refused'))));
  shutdown.follow(never);
  t.equal(await shutdown.suspend(100, () => [never]), 2);
  t.throws(() => shutdown.requireRunning(), REFUSED);
});

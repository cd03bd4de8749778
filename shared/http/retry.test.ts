import t from 'tap';
import { backoffMs, pause, retry, retryAfterMs } from './retry.ts';

t.test('pauses grow to a ceiling, and chance takes its share', async t => {
  const backoff = { firstMs: 100, maxMs: 1000 };
  t.same(
    [1, 2, 3, 4, 5, 2000].map(attempt => backoffMs(backoff, attempt)),
    [100, 200, 400, 800, 1000, 1000],
  );
  t.same(
    [1, 2].map(attempt => backoffMs({ firstMs: 50, factor: 5 }, attempt)),
    [50, 250],
  );
  t.equal(backoffMs({ ...backoff, jitter: 0.5 }, 3, 0), 400);
  t.equal(backoffMs({ ...backoff, jitter: 0.5 }, 3, 0.5), 300);
  t.equal(backoffMs({ ...backoff, jitter: 1 }, 3, 0.75), 100);
});

t.test('Retry-After is read as seconds and as a date; it asks for an hour at most', async t => {
  const now = Date.parse('2026-11-26T12:00:00Z');
  t.equal(retryAfterMs('7'), 7000);
  t.equal(retryAfterMs('0.5'), 500);
  t.equal(retryAfterMs('Thu, 26 Nov 2026 12:00:30 GMT', now), 30_000);
  t.equal(retryAfterMs('Thu, 26 Nov 2026 11:00:00 GMT', now), 0);
  t.equal(retryAfterMs('99999999999'), 3_600_000);
  t.equal(retryAfterMs(['3', '4'].slice(0, 1)), 3000);
  for (const none of [undefined, '', 'soon', '-5', '0', 'NaN', '1.2.3'])
    t.equal(retryAfterMs(none), 0, String(none));
});

t.test('work is repeated until it succeeds or no attempt may follow', async t => {
  const waited: number[] = [];
  const wait = async (ms: number): Promise<void> => void waited.push(ms);
  let calls = 0;
  const third = async (): Promise<string> => {
    if (++calls < 3) throw new Error(`fault ${calls}`);
    return 'done';
  };
  const seen: unknown[] = [];
  const pauseAfter = (error: unknown, attempt: number): number => {
    seen.push([(error as Error).message, attempt]);
    return 10 * attempt;
  };
  t.equal(await retry(third, pauseAfter, undefined, wait), 'done');
  t.same(seen, [
    ['fault 1', 1],
    ['fault 2', 2],
  ]);
  t.same(waited, [10, 20]);
  const never = async (): Promise<never> => {
    throw new Error('fault');
  };
  const gaveUp = retry(never, (_, attempt) => {
    if (attempt === 2) throw new Error('given up');
    return 0;
  });
  await t.rejects(gaveUp, { message: 'given up' });
});

t.test('a signal ends a wait with its reason and leaves nothing behind', async t => {
  const controller = new AbortController();
  const waiting = retry(
    async () => {
      throw new Error('fault');
    },
    () => 3_000_000_000,
    controller.signal,
  );
  await new Promise(resolve => setImmediate(resolve));
  controller.abort(new Error('enough'));
  await t.rejects(waiting, { message: 'enough' });
  await t.rejects(pause(0, controller.signal), { message: 'enough' });
  t.equal(await pause(1, new AbortController().signal), undefined);
});

t.test('a wait longer than a timer can be does not end at once', async t => {
  const controller = new AbortController();
  const waiting = pause(2 ** 40, controller.signal);
  const first = await Promise.race([waiting.catch(() => 'aborted'), pause(20).then(() => 'still waiting')]);
  t.equal(first, 'still waiting');
  controller.abort(new Error('enough'));
  await t.rejects(waiting, { message: 'enough' });
});

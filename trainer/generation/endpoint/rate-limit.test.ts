import t from 'tap';
import { RateLimit } from './completions.ts';

/** A clock that jumps to where it is slept to. */
function jumpingClock() {
  let time = 0;
  return {
    now: () => time,
    sleep: async (ms: number) => {
      time += ms;
    },
  };
}

t.test('the rate limit holds in any minute, in request order', async t => {
  const clock = jumpingClock();
  const limit = new RateLimit(2, clock);
  const times: number[] = [];
  await Promise.all([1, 2, 3, 4, 5].map(() => limit.take(1).then(() => times.push(clock.now()))));
  t.same(times, [0, 0, 60_000, 60_000, 120_000]);
});

t.test('the actual cost counts, and a request over the limit goes alone', async t => {
  const clock = jumpingClock();
  const limit = new RateLimit(100, clock);
  const correct = await limit.take(90);
  correct(20);
  await limit.take(80);
  t.equal(clock.now(), 0);
  await limit.take(500);
  t.equal(clock.now(), 60_000);
  await new RateLimit(Number.POSITIVE_INFINITY, clock).take(1e9);
  t.equal(clock.now(), 60_000);
});

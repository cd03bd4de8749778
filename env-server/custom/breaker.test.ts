import t from 'tap';
import { CircuitBreaker } from './breaker.ts';

t.test(
  'the breaker opens after consecutive failures, allows one trial, and waits longer each time',
  async t => {
    let now = 0;
    const breaker = new CircuitBreaker(() => now, 2);
    breaker.failed();
    t.equal(breaker.enter(), 0, 'one failure is nothing');
    breaker.failed();
    t.equal(breaker.enter(), 1000);
    breaker.failed();
    t.equal(breaker.enter(), 1000, 'a call that began before the pause does not lengthen it');
    now = 400;
    t.equal(breaker.enter(), 600);
    now = 1000;
    t.equal(breaker.enter(), 0, 'one may try');
    t.ok(breaker.enter() > 0, 'the others wait for it');
    breaker.failed();
    t.equal(breaker.enter(), 2000);
    now = 3000;
    t.equal(breaker.enter(), 0);
    breaker.succeeded();
    t.equal(breaker.enter(), 0);
    breaker.failed();
    t.equal(breaker.enter(), 0, 'a success forgets the failures');
  },
);

t.test('the breaker waits a minute at most', async t => {
  let now = 0;
  const breaker = new CircuitBreaker(() => now, 1);
  for (let i = 0; i < 20; i++) {
    breaker.failed();
    now += 100_000;
  }
  breaker.failed();
  t.equal(breaker.enter(), 60_000);
});

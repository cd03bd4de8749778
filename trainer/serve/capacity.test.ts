import t from 'tap';
import { Budget } from './access.ts';

t.test('a budget also charges its parent, and returns a share once', async t => {
  const whole = new Budget(3, used => `${used} of all`);
  const [a, b] = ['a', 'b'].map(name => new Budget(2, used => `${used} of ${name}`, whole));
  const first = a.take(2);
  t.throws(() => a.take(), { status: 429, message: '2 of a', retryAfterS: 1 });
  const second = b.take();
  t.throws(() => b.take(), { status: 429, message: '3 of all' });
  t.equal(b.used, 1, 'what the other budget refuses is not taken from this one');
  first();
  first();
  t.same([a.used, b.used, whole.used], [0, 1, 1]);
  second();
  t.equal(whole.used, 0);
});

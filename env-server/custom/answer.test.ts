import t from 'tap';
import { readOutcome } from './answer.ts';

t.test('reward components of a service must be finite numbers by name', async t => {
  const info = (rewards: unknown) => ({ reward: 1, info: { success: true, rewards } });
  t.match(readOutcome(info({ style: 0.25 }), true).info, { rewards: { style: 0.25 } });
  t.throws(() => readOutcome(info({ style: 'good' }), true), {
    message: /info\.rewards\.style must be a finite number/,
  });
  t.throws(() => readOutcome(info({ style: null }), true), {
    message: /info\.rewards\.style must be a finite number/,
  });
});

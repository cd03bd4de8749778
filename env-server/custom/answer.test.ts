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

t.test('a number beyond those of a computer is named as such', async t => {
  const answers = [{ reward: Infinity }, { info: { rewards: { style: Infinity } } }];
  for (const answer of answers)
    t.throws(() => readOutcome(answer, true), {
      message: / must be a finite number, got Infinity, a number beyond ±1\.8e308$/,
    });
});

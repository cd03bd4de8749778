import t from 'tap';
import { meanPassAtK, passAtK } from '../../commands/evaluate/evaluation.ts';

t.test('with k = n it says whether any attempt succeeded', async t => {
  t.equal(passAtK(4, 0, 4), 0);
  t.equal(passAtK(4, 1, 4), 1);
});

t.test('pass@k equals the average over all choices of k attempts', async t => {
  const attempts = [true, false, false, true, false];
  let hits = 0;
  let pairs = 0;
  for (let i = 0; i < attempts.length; i++) {
    for (let j = i + 1; j < attempts.length; j++) {
      pairs++;
      if (attempts[i] || attempts[j]) hits++;
    }
  }
  t.ok(Math.abs(passAtK(5, 2, 2) - hits / pairs) < 1e-12);
});

t.test('groups are averaged', async t => {
  t.equal(
    meanPassAtK(
      [
        [true, false],
        [false, false],
      ],
      2,
    ),
    0.5,
  );
});

t.test('impossible counts are refused', async t => {
  t.throws(() => passAtK(2, 1, 3), { message: 'pass@3 needs 1 ≤ k ≤ 2 attempts' });
  t.throws(() => passAtK(2, 3, 1), { message: '3 successes in 2 attempts' });
});

import t from 'tap';
import { short, signed, timeLeft } from './format.ts';

t.test('a number is short at any size', t => {
  const values = [null, Number.NaN, 0, 0.00001, -0.5, 12_345, 1e9, 1e31, -1.7e308];
  t.same(values.map(short), ['–', '–', '0', '1.0e-5', '−0.5', '12.3k', '1.0G', '1.0e31', '−1.7e308']);
  t.end();
});

t.test('the time that is left is as fine as an estimate', t => {
  const texts = [-5, 3, 41, 89, 91, 600, 5399, 5400, 9100, 40_000, 200_000].map(seconds =>
    timeLeft(seconds).replace('\u00a0', ' '),
  );
  t.same(texts, [
    'about 0 s left',
    'about 10 s left',
    'about 50 s left',
    'about 90 s left',
    'about 2 min left',
    'about 10 min left',
    'about 90 min left',
    'about 1.5 h left',
    'about 2.5 h left',
    'about 11 h left',
    'about 2.5 d left',
  ]);
  t.end();
});

t.test('a change has its sign, unless it is none', async t => {
  t.same([0.5, -1.2, 0, -0.001].map(signed), ['+0.50', '−1.20', '0.00', '0.00']);
});

import t from 'tap';
import { checkNumbers, type WrittenNumbers, wrongNumbers } from './numbers.ts';

const SUCCESS: WrittenNumbers = {
  page: 'page.md',
  written: /success ([\d,.]+) % in ([\d,]+) episodes/,
  printed: /^(\d+\.\d) % (\d+)$/m,
  interval: { by: 2 },
};

t.test('a number outside the interval around the measured one is named', async t => {
  const page = 'The success 94 % in 1,000 episodes.';
  t.same(wrongNumbers(SUCCESS, page, 'done\n95.9 % 1001\n'), []);
  t.same(wrongNumbers(SUCCESS, page, '96.1 % 1000\n'), [
    'page.md says 94; measured 96.1, which allows 94.1 to 98.1',
  ]);
  const doubled = { ...SUCCESS, interval: { times: 2 } };
  t.same(wrongNumbers(doubled, page, '50.0 % 1999\n'), []);
  t.same(wrongNumbers(doubled, page, '94.0 % 2001\n'), [
    'page.md says 1,000; measured 2001, which allows 1000.5 to 4002',
  ]);
});

t.test('a page or a command without the number is named', async t => {
  t.match(wrongNumbers(SUCCESS, 'No success.', '94.0 % 1000\n'), [/^page\.md: nothing on the page is like /]);
  t.match(wrongNumbers(SUCCESS, 'success 94 % in 1,000 episodes', 'failed'), [
    /the command printed nothing like /,
  ]);
});

t.test('numbers of the pages are what their commands print', async t => {
  t.same(await checkNumbers(line => t.comment(line)), []);
});

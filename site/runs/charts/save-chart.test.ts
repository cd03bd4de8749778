import t from 'tap';
import { csvOf } from './chart.ts';

t.test('CSV has a row for each step, bands, and names that spreadsheets read as text', async t => {
  const csv = csvOf([
    { label: 'a,"b"', x: [1, 2], y: [0.5, Number.NaN], low: [0, 0], high: [1, 1] },
    { label: '=cmd()', x: [2, 3], y: [7, 8] },
  ]);
  t.equal(
    csv,
    ['step,"a,""b""","a,""b"" low","a,""b"" high",\'=cmd()', '1,0.5,0,1,', '2,NaN,0,1,7', '3,,,,8', ''].join(
      '\n',
    ),
  );
});

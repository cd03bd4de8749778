import t from 'tap';
import { listOf, listText } from './run-query.ts';

t.test('names survive an address with the commas and percent signs that they have', t => {
  for (const names of [['a'], ['a,b', 'c'], ['100 %', '%2C', '%25,'], [',', '%', '%252C'], ['']]) {
    t.same(listOf(listText(names)), names);
  }
  t.equal(listText(['train/return', 'lr=1,2']), 'train/return,lr=1%2C2');
  t.same(listOf('hit%,100%zz'), ['hit%', '100%zz'], 'a sign that nobody escaped');
  t.end();
});

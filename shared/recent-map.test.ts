import t from 'tap';
import { RecentMap, remembered } from './remembered.ts';

t.test('the entry that was used longest ago is dropped', async t => {
  const map = new RecentMap<string, number>(2);
  map.set('a', 1).set('b', 2);
  t.equal(map.get('a'), 1);
  map.set('c', 3);
  t.same(
    [...map],
    [
      ['a', 1],
      ['c', 3],
    ],
  );
  map.set('a', 4).set('d', 5);
  t.same(
    [...map],
    [
      ['a', 4],
      ['d', 5],
    ],
    'setting an entry uses it',
  );
  t.equal(map.get('b'), undefined);
  t.equal(map.size, 2, 'looking for a missing key adds nothing');
});

t.test('a value is made once while it is kept', async t => {
  const map = new RecentMap<string, number>(1);
  let made = 0;
  const get = (key: string) => remembered(map, key, () => ++made);
  t.same([get('a'), get('a'), get('b'), get('a')], [1, 1, 2, 3]);
});

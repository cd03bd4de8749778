import t from 'tap';
import { PrefixCache } from './language-model.ts';

t.test('a prompt continues the longest sequence that it begins with', async t => {
  const cache = new PrefixCache(4, () => {});
  cache.keep(1, Int32Array.from([3, 4]));
  cache.keep(2, Int32Array.from([3, 4, 5]));
  cache.keep(3, Int32Array.from([3, 9]));
  t.same(cache.take([3, 4, 5, 6]), { sequenceId: 2, length: 3 });
  t.same(cache.take([3, 4, 5, 6]), { sequenceId: 1, length: 2 }, 'a sequence is taken once');
  t.equal(cache.take([3, 4, 5, 6]), undefined);
  t.equal(cache.take([3, 9]), undefined, 'a prompt has at least one token more');
});

t.test('the oldest sequence is released when there are too many', async t => {
  const released: number[] = [];
  const cache = new PrefixCache(2, id => released.push(id));
  for (const id of [1, 2, 3]) cache.keep(id, Int32Array.from([id]));
  t.same(released, [1]);
  cache.clear();
  t.same(released, [1, 2, 3]);
  t.equal(cache.size, 0);
});

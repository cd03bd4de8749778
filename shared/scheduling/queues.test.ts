import t from 'tap';
import { mapConcurrently, Queue, type SlotGroup, Slots } from './queues.ts';

/** Takes slots and records the owners. */
function taking() {
  const order: string[] = [];
  const take = (group: SlotGroup, name: string) => group.take().then(() => order.push(name));
  return { order, take };
}

const settled = () => new Promise(resolve => setImmediate(resolve));

t.test('slots are bounded, and owners take turns with what waits', async t => {
  const slots = new Slots({ most: 2 });
  const [a, b, c] = ['a', 'b', 'c'].map(owner => slots.group(owner));
  const { order, take } = taking();
  const all = Promise.all([
    ...['a1', 'a2', 'a3', 'a4', 'a5'].map(name => take(a, name)),
    ...['b1', 'b2'].map(name => take(b, name)),
  ]);
  await settled();
  t.same(order, ['a1', 'a2']);
  for (let i = 0; i < 5; i++) a.release();
  await all;
  t.same(order, ['a1', 'a2', 'a3', 'b1', 'a4', 'b2', 'a5']);
  for (let i = 0; i < 2; i++) b.release();
  await Promise.all([take(c, 'c1'), take(c, 'c2')]);
  t.equal(order.length, 9, 'what was given back can be taken');
});

t.test('groups of an owner share its turns, and none has more slots than its limit', async t => {
  const slots = new Slots({ most: 3 });
  const { order, take } = taking();
  const a1 = slots.group('a', 1);
  const a2 = slots.group('a', 1);
  const b = slots.group('b');
  for (const name of ['1', '2', '3']) void take(a1, name);
  void take(a2, 'x');
  await settled();
  t.same(order, ['1', 'x'], 'the third slot is left free');
  void take(b, 'b');
  await settled();
  t.same(order, ['1', 'x', 'b']);
  a1.release();
  await settled();
  t.same(order, ['1', 'x', 'b', '2']);
});

t.test('an owner leaves slots to those who come later', async t => {
  const slots = new Slots({ most: 4, mostOfOwner: free => 1 * free });
  const { order, take } = taking();
  const a = slots.group('a');
  for (let i = 0; i < 9; i++) void take(a, 'a');
  await settled();
  t.equal(order.length, 2, 'no more slots than stay free');
  void take(slots.group('b'), 'b');
  void take(slots.group('c'), 'c');
  await settled();
  t.same(order.slice(2), ['b', 'c']);
});

t.test('a wait ends in time, and what waits behind it is served', async t => {
  // A waiting timeout alone does not keep the process alive.
  const alive = setTimeout(() => {}, 60_000);
  t.teardown(() => clearTimeout(alive));
  const slots = new Slots({ most: 1 });
  const a = slots.group('a');
  t.equal(await a.take(), true);
  const first = a.take(20);
  t.equal(await first, false);
  t.equal(a.waiting, 0);
  const later = a.take(60_000);
  a.release();
  t.equal(await later, true);
});

t.test(
  'a slot that is given back goes to a waiter of its owner, or of another one that may have it',
  async t => {
    const slots = new Slots({ most: 2, mostOfOwner: () => 1 });
    const [a, b, c] = ['a', 'b', 'c'].map(owner => slots.group(owner));
    await a.take();
    t.notOk(slots.isWanted('a'));
    void a.take();
    t.same(
      ['a', 'b'].map(owner => slots.isWanted(owner)),
      [true, false],
      'an owner at its limit waits for its own',
    );
    const { promise, reject } = Promise.withResolvers<never>();
    const work = b.run(() => promise);
    await settled();
    void c.take();
    t.ok(slots.isWanted('b'));
    reject(new Error('failed'));
    await t.rejects(work, { message: 'failed' });
    t.notOk(slots.isWanted('b'), 'work that fails gives its slot back');
  },
);

t.test('a queue is first in, first out, and gives back in front what comes back', t => {
  const queue = new Queue<number>();
  const expected: number[] = [];
  let next = 0;
  for (let round = 0; round < 5000; round++) {
    const count = (round * 7) % 13;
    for (let i = 0; i < count; i++) {
      queue.push(next);
      expected.push(next++);
    }
    if (round % 3 === 0) {
      queue.unshift(-round);
      expected.unshift(-round);
    }
    const taken = round % 100 === 99 ? expected.length : Math.min(expected.length, (round * 5) % 11);
    for (let i = 0; i < taken; i++) {
      if (queue.shift() !== expected.shift()) t.fail(`round ${round}`);
    }
    if (queue.length !== expected.length) t.fail(`length in round ${round}`);
    if (queue.first !== expected[0]) t.fail(`first in round ${round}`);
  }
  while (expected.length > 0) if (queue.shift() !== expected.shift()) t.fail('at the end');
  t.equal(queue.shift(), undefined);
  t.equal(queue.length, 0);
  t.end();
});

t.test('items are worked on so many at once, with results in their order', async t => {
  let [open, most] = [0, 0];
  const found = await mapConcurrently([5, 1, 3, 2], 2, async n => {
    most = Math.max(most, ++open);
    for (let i = 0; i < n; i++) await settled();
    open--;
    return 2 * n;
  });
  t.same(found, [10, 2, 6, 4]);
  t.equal(most, 2);
});

t.test('after a failure no item begins, and open ones are waited for', async t => {
  const [begun, done]: number[][] = [[], []];
  const work = async (n: number) => {
    begun.push(n);
    if (n === 1) throw new Error('one fails');
    await settled();
    await settled();
    done.push(n);
  };
  await t.rejects(mapConcurrently([0, 1, 2, 3], 2, work), { message: 'one fails' });
  t.same([begun, done], [[0, 1], [0]]);
});

import t from 'tap';
import { SerialQueue } from './serial-queue.ts';

t.test('work runs one after the other, and a failure ends no other work', async t => {
  const queue = new SerialQueue();
  const order: string[] = [];
  const work = (name: string) => async () => {
    order.push(`${name} begins`);
    await new Promise(resolve => setImmediate(resolve));
    order.push(`${name} ends`);
    if (name === 'b') throw new Error('fault');
    return name;
  };
  const [a, b, c] = ['a', 'b', 'c'].map(name => queue.run(work(name)));
  await t.rejects(b, { message: 'fault' });
  t.same([await a, await c], ['a', 'c']);
  t.same(order, ['a begins', 'a ends', 'b begins', 'b ends', 'c begins', 'c ends']);
  t.equal(await queue.run(() => 7), 7);
});

t.test('it is idle when all that was requested is over', async t => {
  const queue = new SerialQueue();
  let over = false;
  const failing = queue.run(async () => {
    await new Promise(resolve => setImmediate(resolve));
    over = true;
    throw new Error('fault');
  });
  await Promise.all([queue.idle, t.rejects(failing)]);
  t.ok(over);
});

import t from 'tap';
import { ExpiryWheel } from './server-clock.ts';

const item = (expiresAt: number) => ({ expiresAt, slot: 0 });

t.test('items come out once, when they have expired', async t => {
  const wheel = new ExpiryWheel<ReturnType<typeof item>>(0);
  const items = [item(500), item(1000), item(1500), item(90_000)];
  for (const one of items) wheel.schedule(one);
  t.same(wheel.sweep(999), []);
  t.same(wheel.sweep(1000), items.slice(0, 2));
  t.same(wheel.sweep(1999), []);
  t.same(wheel.sweep(2000), [items[2]]);
  t.same(wheel.sweep(200_000), [items[3]]);
  t.same(wheel.sweep(300_000), []);
});

t.test('use between sweeps is enough to live on', async t => {
  const wheel = new ExpiryWheel<ReturnType<typeof item>>(0);
  const used = item(1000);
  wheel.schedule(used);
  used.expiresAt = 5000;
  t.same(wheel.sweep(3000), []);
  t.same(wheel.sweep(4999), []);
  t.same(wheel.sweep(5000), [used]);
});

t.test('an item that is cancelled never comes out', async t => {
  const wheel = new ExpiryWheel<ReturnType<typeof item>>(0);
  const [kept, cancelled] = [item(1000), item(1000)];
  wheel.schedule(kept);
  wheel.schedule(cancelled);
  wheel.cancel(cancelled);
  wheel.cancel(cancelled);
  t.same(wheel.sweep(1000), [kept]);
});

t.test('an item that expired before it was scheduled comes out at the next sweep', async t => {
  const wheel = new ExpiryWheel<ReturnType<typeof item>>(10_000);
  const late = item(5000);
  wheel.schedule(late);
  t.same(wheel.sweep(11_000), [late]);
});

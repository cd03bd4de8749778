import t from 'tap';
import { Futures, type Result } from './futures.ts';

const owner = {};
const never = new AbortController().signal;
const of = (number: number, content = '') => ({ id: `${number}`, content, conflict: 'used' });
const read = (futures: Futures, id: string) => futures.read(id, one => one === owner, 60_000, never);

t.test('work is started once, and not at all where too many results wait to be read', async t => {
  const futures = new Futures();
  let started = 0;
  const work = async () => ({ started: ++started });
  for (let i = 0; i < 8192; i++) futures.submit(owner, of(i), work);
  const fifth = futures.submit(owner, of(5), work);
  t.throws(() => futures.submit(owner, of(8192), work), {
    status: 429,
    message: /8192 results of this session/,
  });
  t.equal(futures.submit(owner, of(5), work), fifth, 'what comes again is known');
  t.throws(() => futures.submit(owner, of(5, 'other'), work), { status: 400, message: 'used' });
  t.equal(started, 8192);
  t.same(await read(futures, fifth), { started: 6 });
  futures.submit(owner, of(8192), work);
  t.equal(started, 8193, 'a result that was read makes room');
});

t.test('work that is refused at once leaves nothing behind', async t => {
  const futures = new Futures();
  const refuse = () => {
    throw new RangeError('no room');
  };
  for (let i = 0; i < 9000; i++) {
    try {
      futures.submit(owner, of(1), refuse);
    } catch (error) {
      if ((error as Error).message !== 'no room') throw error;
    }
  }
  t.throws(() => futures.submit(owner, of(1), refuse), { message: 'no room' });
  t.same(
    await read(
      futures,
      futures.submit(owner, of(1), async () => ({ done: true })),
    ),
    { done: true },
  );
});

t.test('a result that is dropped while it is read takes no room', async t => {
  const futures = new Futures();
  const { promise, resolve } = Promise.withResolvers<Result>();
  const dropped = futures.submit(owner, of(0), () => promise);
  const reading = read(futures, dropped);
  futures.sweep(one => one === owner);
  resolve(new Uint8Array(200 * 2 ** 20));
  t.ok(await reading);
  await t.rejects(read(futures, dropped), { message: /was dropped/ });
  const large = (number: number) =>
    futures.submit(owner, of(number), async () => new Uint8Array(100 * 2 ** 20));
  const [first, second] = [large(1), large(2)];
  for (const id of [first, second, first]) t.ok(await read(futures, id), 'both fit into 256 MiB');
  t.ok(await read(futures, large(3)));
  await t.rejects(read(futures, first), { message: /was dropped/ }, 'the oldest goes');
  t.ok(await read(futures, second));
  await t.rejects(read(new Futures(), second), { message: /there is no request/ }, 'of another server');
});

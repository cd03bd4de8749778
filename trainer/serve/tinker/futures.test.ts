import t from 'tap';
import { Futures, type Result } from './futures.ts';

const never = new AbortController().signal;
const of = (number: number, content = '') => ({ id: `${number}`, content, conflict: 'used' });
const read = (futures: Futures, number: number) => futures.read(`${number}`, 60_000, never);
const MIB = 2 ** 20;

t.test('work is started once, and not at all while too many results wait to be read', async t => {
  const futures = new Futures([]);
  let started = 0;
  const work = async () => ({ started: ++started });
  for (let i = 0; i < 8192; i++) futures.submit(of(i), work);
  t.throws(() => futures.submit(of(8192), work), { status: 429, message: /8192 results of this session/ });
  futures.submit(of(5), work);
  t.throws(() => futures.submit(of(5, 'other'), work), { status: 400, message: 'used' });
  t.equal(started, 8192, 'what comes again is known');
  t.same(await read(futures, 5), { started: 6 });
  t.same(await read(futures, 5), { started: 6 });
  futures.submit(of(8192), work);
  t.equal(started, 8193, 'a result that was read makes room');
  t.throws(() => futures.submit(of(8193), work), { message: /wait to be read/ }, 'for one');
});

t.test('work that is refused at once leaves nothing behind', async t => {
  const futures = new Futures([]);
  const refuse = () => {
    throw new RangeError('no room');
  };
  for (let i = 0; i < 9000; i++) {
    try {
      futures.submit(of(1), refuse);
    } catch (error) {
      if ((error as Error).message !== 'no room') throw error;
    }
  }
  t.throws(() => futures.submit(of(1), refuse), { message: 'no room' });
  futures.submit(of(1), async () => ({ done: true }));
  t.same(await read(futures, 1), { done: true });
});

t.test('the oldest results go where there is no room, those that wait for their end stay', async t => {
  const futures = new Futures([]);
  const { promise, resolve } = Promise.withResolvers<Result>();
  futures.submit(of(0), () => promise);
  const large = (number: number) => futures.submit(of(number), async () => new Uint8Array(15 * MIB));
  for (const number of [1, 2]) large(number);
  for (const number of [1, 2, 1]) t.ok(await read(futures, number), 'both fit into 32 MiB');
  large(3);
  t.ok(await read(futures, 3));
  await t.rejects(read(futures, 1), { status: 410, message: /was dropped/ }, 'the oldest goes');
  t.ok(await read(futures, 2));
  resolve(new Uint8Array(40 * MIB));
  t.ok(await read(futures, 0), 'a result that is larger than the room is kept while it is the newest');
  await t.rejects(read(futures, 3), { status: 410, message: /was dropped/ });
  large(4);
  t.ok(await read(futures, 4));
  await t.rejects(read(futures, 0), { status: 410, message: /was dropped/ });
});

t.test('results that were read are kept for ten minutes', async t => {
  const futures = new Futures([]);
  for (const number of [1, 2]) futures.submit(of(number), async () => ({ number }));
  await read(futures, 1);
  const later = performance.now() + 600_001;
  futures.sweep();
  t.same(await read(futures, 1), { number: 1 });
  t.intercept(performance, 'now', { value: () => later });
  futures.sweep();
  await t.rejects(read(futures, 1), { status: 410, message: /was dropped/ });
  t.same(await read(futures, 2), { number: 2 });
});

t.test('an error does not say where the folders of the server are', async t => {
  const futures = new Futures(['/srv/base', '/srv/saved']);
  const fail = (number: number, error: Error) => {
    futures.submit(of(number), () => Promise.reject(error));
    return read(futures, number);
  };
  t.same(await fail(1, new RangeError('/srv/base/model.safetensors: x has shape [1]')), {
    error: 'base/model.safetensors: x has shape [1]',
    category: 'user',
  });
  t.same(await fail(2, new Error("ENOSPC: no space left on device, write '/srv/saved/a/b'")), {
    error: "ENOSPC: no space left on device, write 'saved/a/b'",
    category: 'server',
  });
});

t.test('polls that end before the result leave nothing behind', async t => {
  const { promise, resolve } = Promise.withResolvers<Result>();
  let listeners = 0;
  const settled = {
    // biome-ignore lint/suspicious/noThenProperty: it counts who listens to the result.
    then(...given: Parameters<typeof promise.then>) {
      listeners++;
      return promise.then(...given);
    },
  };
  const futures = new Futures([]);
  futures.submit(of(1), () => ({ catch: () => settled }) as unknown as Promise<Result>);
  const gone = new AbortController();
  const waits = Array.from({ length: 100 }, () => futures.read('1', 60_000, gone.signal));
  gone.abort();
  t.same(new Set(await Promise.all(waits)), new Set([undefined]));
  t.equal(await futures.read('1', 60_000, gone.signal), undefined, 'a client that was gone before it waited');
  const alive = setTimeout(() => {}, 60_000);
  t.equal(await futures.read('1', 1, never), undefined, 'a poll that is over');
  clearTimeout(alive);
  const last = read(futures, 1);
  resolve({ done: true });
  t.same(await last, { done: true });
  t.equal(listeners, 1, 'the result is listened to once, not by each poll');
});

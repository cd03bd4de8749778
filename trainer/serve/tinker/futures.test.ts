import t from 'tap';
import { Futures, type Result } from './futures.ts';

const owner = { owner: 'key', share: 'key', seenAt: 0 };
const never = new AbortController().signal;
const of = (number: number, content = '') => ({ id: `${number}`, content, conflict: 'used' });
const read = (futures: Futures<typeof owner>, id: string) => futures.read(id, owner.owner, 60_000, never);

t.test('work is started once, and not at all while too many results wait to be read', async t => {
  const futures = new Futures<typeof owner>();
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
  const futures = new Futures<typeof owner>();
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
  const futures = new Futures<typeof owner>();
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
  await t.rejects(
    read(new Futures<typeof owner>(), second),
    { message: /there is no request/ },
    'of another server',
  );
});

t.test('results of one key never evict those of another, read or not', async t => {
  const futures = new Futures<typeof owner>();
  const hostile = { owner: 'hostile', share: 'hostile', seenAt: 0 };
  const readOf = (reader: typeof owner, id: string) => futures.read(id, reader.owner, 60_000, never);
  const submit = (reader: typeof owner, number: number, mebibytes: number) =>
    futures.submit(reader, of(number), async () => new Uint8Array(mebibytes * 2 ** 20));
  const mine = [submit(owner, 1, 50), submit(owner, 2, 50)];
  t.ok(await readOf(owner, mine[0]));
  const theirs = Array.from({ length: 20 }, (_, i) => submit(hostile, 10 + i, 50));
  await readOf(hostile, theirs[19]);
  for (const id of mine) t.ok(await readOf(owner, id));
  await t.rejects(readOf(hostile, theirs[16]), {
    status: 410,
    message: /newer results of its key took its room/,
  });
  t.ok(await readOf(hostile, theirs[17]), 'what fits is kept');
  futures.sweep(one => one === hostile);
  mine.push(submit(owner, 3, 100));
  for (const id of mine) t.ok(await readOf(owner, id), 'what was dropped takes no room');
});

t.test(
  'results of a thousand made-up keys of one address evict one another, not those of another address',
  async t => {
    const futures = new Futures<typeof owner>();
    const mine = futures.submit(owner, of(0), async () => new Uint8Array(2 ** 20));
    const done = Array.from({ length: 1000 }, (_, i) => {
      const reader = { owner: `made up ${i}`, share: 'address 127.0.0.1', seenAt: 0 };
      const id = futures.submit(reader, of(1 + i), async () => new Uint8Array(2 ** 19));
      return { id, reader };
    });
    for (const { id, reader } of done.slice(-100)) t.ok(await futures.read(id, reader.owner, 60_000, never));
    t.ok(await read(futures, mine));
    const [{ id, reader }] = done;
    await t.rejects(futures.read(id, reader.owner, 60_000, never), { status: 410, message: /was dropped/ });
  },
);

t.test('an error does not say where the folders of the server are', async t => {
  const futures = new Futures<typeof owner>(['/srv/base', '/srv/saved']);
  const fail = (number: number, error: Error) =>
    read(
      futures,
      futures.submit(owner, of(number), () => Promise.reject(error)),
    );
  t.same(await fail(1, new RangeError('/srv/base/model.safetensors: x has shape [1]')), {
    error: 'base/model.safetensors: x has shape [1]',
    category: 'user',
  });
  t.same(await fail(2, new Error("ENOSPC: no space left on device, write '/srv/saved/a/b'")), {
    error: "ENOSPC: no space left on device, write 'saved/a/b'",
    category: 'server',
  });
});

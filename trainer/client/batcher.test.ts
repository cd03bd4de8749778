import t from 'tap';
import type { Request } from './operations.ts';
import { Batcher } from './server.ts';

const request = (id: string): Request => ({ op: 'get', input: { session_id: id } }) as Request;
const idOf = (one: Request): string => (one.input as { session_id: string }).session_id;

/** Answers every request with its id, and keeps what was sent. */
function recording(): { batches: string[][]; exchange: (requests: readonly Request[]) => Promise<never[]> } {
  const batches: string[][] = [];
  return {
    batches,
    exchange: async requests => {
      batches.push(requests.map(idOf));
      return requests.map(idOf) as never[];
    },
  };
}

t.test('requests of one turn of the event loop make one batch, in order', async t => {
  const { batches, exchange } = recording();
  const batcher = new Batcher(exchange, 100);
  const replies = await Promise.all([
    batcher.add([request('a'), request('b')]),
    Promise.resolve().then(() => batcher.add([request('c')])),
  ]);
  t.same(batches, [['a', 'b', 'c']]);
  t.same(replies, [['a', 'b'], ['c']]);
  await batcher.add([request('d')]);
  t.same(batches[1], ['d']);
});

t.test('batches are limited, but what belongs together stays together', async t => {
  const { batches, exchange } = recording();
  const batcher = new Batcher(exchange, 3);
  await Promise.all([
    batcher.add([request('a'), request('b')]),
    batcher.add([request('c'), request('d')]),
    batcher.add([request('e')]),
    batcher.add([request('f'), request('g'), request('h'), request('i')]),
  ]);
  t.same(batches, [
    ['a', 'b'],
    ['c', 'd', 'e'],
    ['f', 'g', 'h', 'i'],
  ]);
});

t.test('a batch without a reply fails all of its requests', async t => {
  const batcher = new Batcher(async () => Promise.reject(new Error('cut')), 10);
  const replies = await Promise.allSettled([batcher.add([request('a')]), batcher.add([request('b')])]);
  t.same(
    replies.map(reply => reply.status),
    ['rejected', 'rejected'],
  );
});

t.test('a request that cannot be written fails alone', async t => {
  const { batches, exchange } = recording();
  const batcher = new Batcher(exchange, 10);
  let deep: unknown = 1;
  for (let level = 0; level < 100_000; level++) deep = [deep];
  const step = { op: 'step', input: { session_id: 'b', action: deep } } as Request;
  const replies = await Promise.allSettled([
    batcher.add([request('a')]),
    batcher.add([step]),
    batcher.add([request('c')]),
  ]);
  t.match(replies, [
    { value: ['a'] },
    { reason: { name: 'RangeError', message: 'a request is nested too deep to be sent' } },
    { value: ['c'] },
  ]);
  t.same(batches, [['a', 'c']]);
});

t.test('large requests leave small ones a batch that a server takes', async t => {
  const { batches, exchange } = recording();
  const batcher = new Batcher(exchange, 100);
  const large = (id: string) =>
    ({ op: 'step', input: { session_id: id, action: 'x'.repeat(1_000_000) } }) as Request;
  await Promise.all(
    [large('a'), request('b'), large('c'), large('d'), request('e')].map(one => batcher.add([one])),
  );
  t.same(batches, [['a', 'b'], ['c'], ['d', 'e']]);
});

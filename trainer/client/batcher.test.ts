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

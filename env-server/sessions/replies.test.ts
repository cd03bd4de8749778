import t from 'tap';
import { Problem } from '../../shared/problems.ts';
import { ReplyMemory } from './replies.ts';

t.test('work is done once for a key', async t => {
  const memory = new ReplyMemory(2);
  let done = 0;
  const ask = (key: string, input: object = { a: 1 }) => memory.once(key, 'op', input, done, () => ++done);
  t.equal(ask('x'), 1);
  t.equal(ask('x'), 1);
  t.equal(ask('x', { request_key: 'x', a: 1, id: 7, timeout_ms: 5 }), 1, 'the envelope does not matter');
  t.throws(() => ask('x', { a: 2 }), { code: 'key_reused' });
  t.throws(() => memory.once('x', 'other', { a: 1 }, 0, () => 0), { code: 'key_reused' });
});

t.test('the oldest replies go, but none for another of the same request', async t => {
  const memory = new ReplyMemory(2);
  let done = 0;
  const ask = (key: string, request: number) => memory.once(key, 'op', {}, request, () => ++done);
  for (const key of ['a', 'b', 'c', 'd']) ask(key, 1);
  t.equal(ask('a', 2), 1, 'four of one request');
  ask('e', 2);
  t.equal(ask('e', 3), 5);
  t.equal(ask('d', 3), 4);
  t.equal(ask('a', 3), 6, 'forgotten');
});

t.test('what failed may be tried again', async t => {
  const memory = new ReplyMemory(2);
  const fail = () => {
    throw new Problem('wrong_step', 'no');
  };
  t.throws(() => memory.once('x', 'op', {}, 1, fail));
  t.equal(
    memory.once('x', 'op', {}, 2, () => 'sync'),
    'sync',
  );
  const rejected = memory.once('y', 'op', {}, 3, () => Promise.reject(new Error('no')));
  t.equal(
    memory.once('y', 'op', {}, 3, () => 'new'),
    rejected,
    'shared while under way',
  );
  await t.rejects(rejected as Promise<unknown>);
  t.equal(
    memory.once('y', 'op', {}, 4, () => 'again'),
    'again',
  );
});

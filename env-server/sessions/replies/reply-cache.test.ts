import t from 'tap';
import { Problem } from '../../problems.ts';
import { ReplyCache, type ReplyCacheOwner, storedReply } from './reply-cache.ts';

/** Somebody who counts the bytes of a memory. */
function holder(replyBytes: number): ReplyCacheOwner & { used: number } {
  return {
    used: 0,
    replyBytes,
    grow(bytes) {
      this.used += bytes;
    },
  };
}

t.test('work is done once for a key', async t => {
  const memory = new ReplyCache(holder(10_000));
  let done = 0;
  const ask = (key: string, input: object = { a: 1 }) => memory.once(key, 'op', input, () => ++done);
  t.equal(ask('x'), 1);
  t.equal(ask('x'), 1);
  t.equal(ask('x', { request_key: 'x', a: 1, id: 7, timeout_ms: 5 }), 1, 'the envelope does not matter');
  t.throws(() => ask('x', { a: 2 }), { code: 'key_reused' });
  t.throws(() => memory.once('x', 'other', { a: 1 }, () => 0), { code: 'key_reused' });
});

t.test('the oldest replies are dropped for room, and their keys are refused from then on', async t => {
  const owner = holder(4000);
  const memory = new ReplyCache(owner);
  let done = 0;
  const ask = (key: string) => memory.once(key, 'op', {}, () => `${++done}`.padEnd(100));
  for (let i = 0; i < 500; i++) ask(`k${i}`);
  t.ok(owner.used < 4000 + 32 * 512, `${owner.used} bytes`);
  const expired = Array.from({ length: 500 }, (_, i) => i).filter(i => {
    try {
      t.equal(ask(`k${i}`), `${i + 1}`.padEnd(100));
      return false;
    } catch (error) {
      t.match(error, { code: 'request_key_expired', status: 409 });
      return true;
    }
  });
  t.equal(done, 500, 'nothing is done twice');
  t.same(
    expired,
    Array.from({ length: expired.length }, (_, i) => i),
    'the oldest',
  );
  t.ok(expired.length > 400 && expired.length < 500, `${expired.length} are dropped`);
});

t.test('a stored reply cache loads equal', async t => {
  const first = new ReplyCache(holder(2000));
  let done = 0;
  const ask = (memory: ReplyCache, key: string) => memory.once(key, 'op', { key }, () => ++done);
  for (let i = 0; i < 5; i++) ask(first, `k${i}`);
  const early = first.changes;
  t.equal(early.added.length, 5);
  for (let i = 5; i < 30; i++) ask(first, `k${i}`);
  first.stored(early);
  const late = first.changes;
  t.same(
    late.removed.map(({ key }) => key),
    ['k0', 'k1', 'k2', 'k3', 'k4'],
    'dropped while it was written',
  );
  first.stored(late);
  t.same([first.changes.added, first.changes.removed, first.changes.dropped.length], [[], [], 0]);
  const again = new ReplyCache(holder(2000));
  again.recall(late.added.map(storedReply), [early.dropped, late.dropped]);
  for (let i = 0; i < 30; i++) {
    const kept = late.added.some(({ key }) => key === `k${i}`);
    if (kept) t.equal(ask(again, `k${i}`), i + 1);
    else t.throws(() => ask(again, `k${i}`), { code: 'request_key_expired' });
  }
  t.equal(done, 30);
  t.equal(ask(again, 'new'), 31);
});

t.test('dropped keys are forgotten after a time, not before', async t => {
  const memory = new ReplyCache(holder(1));
  const ask = () => memory.once('x', 'op', {}, () => 1);
  ask();
  for (const now of [0, 999, 1000, 1999]) {
    memory.turn(now, 1000);
    t.throws(ask, { code: 'request_key_expired' }, `${now} ms`);
  }
  memory.turn(2000, 1000);
  t.equal(ask(), 1);
});

t.test('a failed request may be repeated', async t => {
  const memory = new ReplyCache(holder(10_000));
  const fail = () => {
    throw new Problem('wrong_step', 'no');
  };
  t.throws(() => memory.once('x', 'op', {}, fail));
  t.equal(
    memory.once('x', 'op', {}, () => 'sync'),
    'sync',
  );
  const rejected = memory.once('y', 'op', {}, () => Promise.reject(new Error('no')));
  t.equal(
    memory.once('y', 'op', {}, () => 'new'),
    rejected,
    'shared while in progress',
  );
  await t.rejects(rejected as Promise<unknown>);
  t.equal(
    memory.once('y', 'op', {}, () => 'again'),
    'again',
  );
});

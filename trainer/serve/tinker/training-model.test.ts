import t from 'tap';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import type { LocalPolicy } from '../../policy/local-policy.ts';
import { OperationQueue, TrainingModel } from './training-model.ts';

t.test('at most 256 operations wait, and those that they wait for are accepted', async t => {
  const queue = new OperationQueue(60_000);
  const order: number[] = [];
  const run = (seqId: number) => queue.run(seqId, true, async () => order.push(seqId));
  const waiting = Array.from({ length: 256 }, (_, i) => run(3 + i));
  t.throws(() => run(300), {
    status: 400,
    message: 'seq_id 300 is too far ahead: 256 requests wait, next is 1',
  });
  waiting.push(run(2), run(1));
  await Promise.all(waiting);
  t.same(
    order,
    Array.from({ length: 258 }, (_, i) => i + 1),
  );
  t.same(queue.lost, []);
  await queue.close('over');
  t.throws(() => run(259), { message: 'over' });
});

t.test('a rejected operation blocks no other, and a running one is not rejected', async t => {
  const queue = new OperationQueue(60_000);
  const { promise, resolve } = Promise.withResolvers<string>();
  const first = queue.run(1, true, () => promise);
  const third = queue.run(3, true, async () => 'third');
  queue.refuse(1, 'other content', true);
  queue.refuse(2, 'no such loss', true);
  queue.refuse(2, 'again', true);
  resolve('first');
  t.same(await Promise.all([first, third]), ['first', 'third']);
  t.same(queue.lost, [{ seqId: 2, why: 'no such loss' }]);
  const closed = queue.run(5, true, async () => 'fifth');
  await Promise.all([t.rejects(closed, { message: 'unloaded' }), queue.close('unloaded')]);
});

t.test(
  'requests that are refused without end leave one before the next step, and those after it',
  async t => {
    const queue = new OperationQueue(60_000);
    queue.refuse(20_000, 'too far ahead', true);
    for (let seqId = 1; seqId <= 10_000; seqId++) queue.refuse(seqId, `bad ${seqId}`, true);
    queue.refuse(10_002, 'after the step', true);
    t.same(queue.lost, [
      { seqId: 1, why: 'bad 1' },
      { seqId: 10_002, why: 'after the step' },
    ]);
  },
);

t.test('snapshots have 1 GiB besides the newest, and a version is copied once', async t => {
  let version = 0;
  let copies = 0;
  const policy = {
    get version() {
      return version;
    },
    copyWeights: async () => ({ version, flat: { byteLength: 2 ** 29, copy: ++copies } }),
  } as unknown as LocalPolicy;
  const model = new TrainingModel('m', {} as LoraConfig, Promise.resolve(policy), 1_000);
  const taken: unknown[] = [];
  const into = { takeWeights: async (flat: unknown) => taken.push(flat) } as unknown as LocalPolicy;
  const snapshots = [];
  for (; version < 5; version++) {
    snapshots.push(await model.snapshot());
    t.equal((await model.snapshot()).key, snapshots[version].key);
  }
  t.equal(copies, 5);
  for (const old of snapshots.slice(0, 2))
    await t.rejects(old.load(into), { status: 400, message: /keeps the 16 newest of a model, up to 1 GiB/ });
  for (const kept of snapshots.slice(2)) await kept.load(into);
  t.match(taken, [{ copy: 3 }, { copy: 4 }, { copy: 5 }]);
});

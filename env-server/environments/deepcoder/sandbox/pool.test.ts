import t from 'tap';
import { until } from '../../../../test/until.test-data.ts';
import { FairQueue } from './pool.ts';

const LIMITS = { slots: 2, guestSlots: 1, queueLength: 3, queueSeconds: 600 };

/** A queue, and who has got slots so far, in order. */
function queue(limits = LIMITS) {
  const fair = new FairQueue(limits);
  const got: [owner: string, slot: number][] = [];
  return {
    fair,
    got,
    ask: (owner: string) => {
      const turn = fair.acquire(owner).then(slot => {
        got.push([owner, slot]);
        return slot;
      });
      turn.catch(() => undefined);
      return turn;
    },
    owners: () => got.map(([owner]) => owner).join(''),
  };
}

const settled = () => new Promise(resolve => setImmediate(resolve));

t.test('one owner alone may hold all common slots, and the guest slots stay free', async t => {
  const { ask, owners, fair } = queue();
  for (let i = 0; i < 4; i++) ask('a');
  await settled();
  t.equal(owners(), 'aa');
  t.equal(fair.held, 2);
});

t.test('an owner who holds nothing does not wait for others', async t => {
  const { ask, owners } = queue();
  for (let i = 0; i < 3; i++) ask('a');
  const slot = await ask('b');
  t.equal(slot, 2, 'a slot that nobody else has');
  t.equal(owners(), 'aab');
});

t.test(
  'what becomes free goes to the owner who holds least, then to the one who waited longest for a turn',
  async t => {
    const { ask, fair, owners, got } = queue();
    for (let i = 0; i < 4; i++) ask('a');
    for (let i = 0; i < 2; i++) ask('b');
    ask('c');
    await settled();
    t.equal(owners(), 'aab', 'all three slots are taken');
    fair.release('a', got[0][1]);
    await settled();
    t.equal(owners(), 'aabc', 'c holds nothing');
    fair.release('b', got[2][1]);
    await settled();
    t.equal(owners(), 'aabcb', 'now b holds nothing');
    fair.release('c', got[3][1]);
    fair.release('b', got[4][1]);
    await settled();
    t.equal(owners(), 'aabcba', 'of the common slots one was free again');
    fair.release('a', got[1][1]);
    await settled();
    t.equal(owners(), 'aabcbaa');
  },
);

t.test('no slot is held twice in any order', async t => {
  const { ask, fair } = queue({ slots: 3, guestSlots: 2, queueLength: 1000, queueSeconds: 600 });
  const held = new Set<number>();
  let done = 0;
  await Promise.all(
    Array.from({ length: 200 }, async (_, index) => {
      const owner = 'abcdefg'[(index * 5) % 7];
      const slot = await ask(owner);
      if (held.has(slot)) t.fail(`slot ${slot} is held twice`);
      held.add(slot);
      for (let turn = 0; turn < index % 4; turn++) await settled();
      held.delete(slot);
      fair.release(owner, slot);
      done++;
    }),
  );
  t.equal(done, 200);
  t.equal(fair.held, 0);
});

t.test('the queue of each owner is bounded in length', async t => {
  const { ask } = queue();
  for (let i = 0; i < 5; i++) ask('a');
  await t.rejects(ask('a'), {
    code: 'too_many_requests',
    status: 429,
    retryAfterSeconds: Number,
    message: /^this token has 3 programs waiting already/,
  });
  t.equal(await ask('b'), 2, 'which others do not feel');
});

t.test('the queue is bounded in time, and who gave up takes no slot', async t => {
  const { ask, fair, owners } = queue({ ...LIMITS, queueSeconds: 0.05 });
  const first = await ask('a');
  await ask('a');
  const waiting = ask('a');
  let over = false;
  waiting.catch(() => {
    over = true;
  });
  await until(() => over);
  await t.rejects(waiting, { code: 'environment_busy', status: 503, retryAfterSeconds: Number });
  fair.release('a', first);
  await settled();
  t.equal(owners(), 'aa');
  t.equal(fair.held, 1);
});

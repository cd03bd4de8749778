import t from 'tap';
import { newId } from './ids.ts';
import { MAX_PROCESSES, newSessionId, serialAfter, workerOfReply, workerOfSession } from './placement.ts';

t.test('a session’s id names its process', async t => {
  for (const count of [1, 2, 3, 7, MAX_PROCESSES]) {
    const ids = new Set<string>();
    for (let index = 0; index < count; index++) {
      for (let i = 0; i < 20; i++) {
        const id = newSessionId({ index, count });
        t.match(id, /^s[\w-]{16}$/);
        t.equal(workerOfSession(id, count), index, `${id}, ${index} of ${count}`);
        ids.add(id);
      }
    }
    t.equal(ids.size, 20 * count);
  }
});

t.test(
  'ids from another number of processes, and what is no id, belong to one of those there are',
  async t => {
    const found = new Set<number>();
    for (let i = 0; i < 200; i++) found.add(workerOfSession(newId('s'), 3));
    t.same([...found].sort(), [0, 1, 2]);
    for (const text of ['', 's', 'sö', 's\u{1f600}', 'anything']) {
      t.ok([0, 1, 2].includes(workerOfSession(text, 3)), text);
    }
  },
);

t.test('keys are spread over the processes', async t => {
  const counts = [0, 0, 0, 0];
  for (let i = 0; i < 4000; i++) counts[workerOfReply('trainer', `k${i}`, 4)]++;
  for (const count of counts) t.ok(count > 800 && count < 1200, `${count} of 4000`);
  t.equal(workerOfReply('a', 'bc', 64), workerOfReply('a', 'bc', 64));
});

t.test('serials of all processes are in the order of time and never the same', async t => {
  t.equal(serialAfter(7, 1e12), 8);
  const first = serialAfter(7, 1e12, { index: 1, count: 2 });
  const other = serialAfter(7, 1e12, { index: 0, count: 2 });
  t.not(first, other);
  t.ok(serialAfter(first, 1e12, { index: 1, count: 2 }) > first, 'within a millisecond');
  t.ok(
    serialAfter(other, 1e12 + 2, { index: 0, count: 2 }) > serialAfter(first, 1e12, { index: 1, count: 2 }),
  );
  t.ok(String(serialAfter(0, Date.UTC(2100, 0), { index: 63, count: 64 })).length <= 15, 'fits a cursor');
  t.equal(serialAfter(4e15, 1e12, { index: 0, count: 2 }) > 4e15, true, 'never back');
});

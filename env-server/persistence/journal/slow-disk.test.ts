import { setImmediate as nextTurn } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { testRegistry } from '../../../test/environments.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { dial } from '../../../test/wire.test-data.ts';
import { createApp } from '../../app.ts';
import { copied, FaultyDisk, filesOf, openJournal } from './journal.test-data.ts';
import type { JournalSettings } from './journal.ts';

/** A write that takes so long makes a spell in which every test is done. */
const SLOW_MS = 250;

/** Journals on a disk that takes its time. */

async function slowJournal(t: Test, given: Partial<JournalSettings> = {}) {
  const folder = t.testdir();
  const opened = openJournal(folder, { slowWriteMs: SLOW_MS / 2, ...given });
  const { journal, disk } = opened;
  disk.holds = true;
  disk.delayMs = SLOW_MS;
  let n = 0;
  const delivered: number[] = [];
  /** Records in a separate turn, with a reply. */
  const record = async () => {
    const number = ++n;
    journal.append('s', 'sA', number, '"Left"');
    journal.deliver(() => delivered.push(number));
    await nextTurn();
  };
  const finish = async () => {
    disk.finishWrites();
    await nextTurn();
  };
  await record();
  t.same(delivered, [1], 'the first write shows that the disk is slow');
  t.ok(journal.isSlow);
  disk.delayMs = 0;
  const numbers = async () => (await copied(t, folder)).records.map(text => Number(text.split(' ')[2]));
  return { ...opened, folder, record, finish, delivered, numbers };
}

t.test(
  'on a slow disk the event loop continues: records wait together, reading replies do not wait',
  async t => {
    const { journal, disk, record, finish, delivered, numbers } = await slowJournal(t);
    for (let i = 0; i < 4; i++) await record();
    t.same(delivered, [1]);
    t.equal(disk.late.length, 1, 'one write at a time');
    let read = false;
    journal.deliver(() => {
      read = true;
    }, true);
    t.ok(read);
    await finish();
    t.same(delivered, [1, 2]);
    t.equal(disk.late.length, 1, 'what came meanwhile goes out in one');
    await finish();
    t.same(delivered, [1, 2, 3, 4, 5]);
    journal.deliver(() => delivered.push(0));
    t.equal(delivered.at(-1), 0, 'nothing waits any more');
    journal.close();
    t.same(await numbers(), [1, 2, 3, 4, 5]);
  },
);

t.test('a write that is a little slow makes a short spell', async t => {
  const { journal, disk } = openJournal(t.testdir(), { slowWriteMs: 1 });
  t.teardown(() => journal.close());
  /** Each look at the clock takes a millisecond. */
  let clock = 0;
  t.intercept(performance, 'now', { value: () => ++clock });
  const record = async (n: number) => {
    journal.append('s', 'sA', n, '"Left"');
    await new Promise<void>(resolve => journal.deliver(resolve));
  };
  disk.delayMs = 5;
  await record(1);
  t.ok(journal.isSlow);
  const begun = clock;
  while (journal.isSlow);
  const spell = clock - begun;
  t.ok(spell > 100 * disk.delayMs && spell < 200 * disk.delayMs, `${spell} ms`);
  disk.delayMs = 0;
  await record(2);
  t.equal(disk.writes, 2, 'the event loop waits for writes again');
  t.equal(disk.late.length, 0);
});

t.test('a write that hangs is reported, and too much that waits for it is refused', async t => {
  const { journal, disk, health, record, finish } = await slowJournal(t, { maxWaitingBytes: 200 });
  await record();
  t.doesNotThrow(() => journal.requireRoom());
  for (let i = 0; i < 20; i++) await record();
  t.throws(() => journal.requireRoom(), {
    code: 'storage_failed',
    message: /the disk is slow; \d+ bytes of earlier operations wait/,
  });
  await until(() => health.degraded);
  t.match(health.report(), { reason: /ETIMEDOUT/, bytes_waiting: journal.bytesWaiting });
  while (disk.late.length > 0) await finish();
  t.notOk(health.degraded);
  t.equal(health.report().bytes_waiting, 0);
  t.doesNotThrow(() => journal.requireRoom());
  journal.close();
});

t.test('a checkpoint does not wait for a slow write, and the end writes again what hangs', async t => {
  const { journal, files, folder, record, finish, delivered, numbers } = await slowJournal(t);
  await record();
  const mark = files.rotate();
  await record();
  t.same(delivered, [1]);
  files.release(mark);
  await finish();
  t.same(delivered, [1, 2], 'the write that was in progress ends');
  t.same(filesOf(folder), [], 'and its file, which the checkpoint covers, is deleted then');
  await record();
  t.equal(journal.close(), 0);
  t.same(delivered, [1, 2, 3, 4]);
  await finish();
  t.same([...new Set(await numbers())], [3, 4], 'twice is as good as once');
});

t.test('a late write that fails is tried again', async t => {
  const { journal, disk, health, record, finish, delivered, numbers } = await slowJournal(t);
  await record();
  disk.fault = 'EIO';
  await finish();
  t.ok(health.degraded);
  t.same(delivered, [1, 2], 'replies leave, as on any disk that takes no writes');
  disk.fault = undefined;
  await until(async () => {
    await finish();
    return !health.degraded;
  });
  await record();
  while (disk.late.length > 0) await finish();
  journal.close();
  t.same(await numbers(), [1, 2, 3]);
  t.same(delivered, [1, 2, 3]);
});

t.test('on a slow disk frames of a WebSocket that read are answered, those that act wait', async t => {
  const disk = new FaultyDisk();
  disk.delayMs = SLOW_MS;
  disk.holds = true;
  const app = await createApp(
    { logLevel: 'silent', data: t.testdir(), checkpointSeconds: 0 },
    { registry: testRegistry(), journalDisk: disk },
  );
  t.teardown(() => app.server.close());
  await app.server.listen({ port: 0, host: '127.0.0.1' });
  const { send, next } = await dial(t, app, '/v1/ws');
  send({ id: 'open', op: 'create', env_id: 'test/Counter-v0' });
  const { session_id } = (await next()).result;
  const ids = async (count: number) => {
    const replies = [];
    while (replies.length < count) replies.push((await next()).id);
    return replies;
  };
  send({ id: 'step', op: 'step', session_id, action: 'add' });
  send({ id: 'get', op: 'get', session_id });
  send({ id: 'reads', op: 'batch', items: [{ op: 'get', session_id }] });
  send({ id: 'acts', op: 'batch', items: [{ op: 'step', session_id, action: 'add' }] });
  send({ id: 'ping', op: 'ping' });
  t.same(await ids(3), ['get', 'reads', 'ping']);
  const answered = ids(2);
  const writing = setInterval(() => disk.finishWrites());
  t.same(await answered, ['step', 'acts']);
  clearInterval(writing);
});

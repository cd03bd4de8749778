import { setImmediate as nextTurn } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { testRegistry } from '../../../test/environments.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { dial } from '../../../test/wire.test-data.ts';
import { createApp } from '../../app.ts';
import { FaultyFiles, openJournal, replayed } from './journal.test-data.ts';
import type { JournalSettings } from './journal.ts';

/** Journals on a disk that takes its time: every write counts as slow. */

async function slowJournal(t: Test, given: Partial<JournalSettings> = {}) {
  const folder = t.testdir();
  const opened = openJournal(folder, { slowWriteMs: -1, ...given });
  const { journal } = opened;
  let n = 0;
  const delivered: number[] = [];
  /** Records in a separate turn, with a reply. */
  const record = async () => {
    const number = ++n;
    journal.append('step', 'sA', number, 'Left');
    journal.deliver(() => delivered.push(number));
    await nextTurn();
  };
  await record();
  t.same(delivered, [1], 'the first write shows that the disk is slow');
  const numbers = async () => (await replayed(folder)).records.map(text => Number(text.split(' ')[2]));
  return { ...opened, folder, record, delivered, numbers };
}

t.test(
  'on a slow disk the event loop goes on: records wait together, reading replies do not wait',
  async t => {
    const { journal, files, record, delivered, numbers } = await slowJournal(t);
    for (let i = 0; i < 4; i++) await record();
    t.same(delivered, [1]);
    t.equal(files.late.length, 1, 'one write at a time');
    let read = false;
    journal.deliver(() => {
      read = true;
    }, true);
    t.ok(read);
    files.finishWrites();
    t.same(delivered, [1, 2]);
    t.equal(files.late.length, 1, 'what came meanwhile goes out in one');
    files.finishWrites();
    t.same(delivered, [1, 2, 3, 4, 5]);
    t.same(await numbers(), [1, 2, 3, 4, 5]);
    journal.deliver(() => delivered.push(0));
    t.equal(delivered.at(-1), 0, 'nothing waits any more');
    journal.close();
  },
);

t.test('a write that hangs is reported, and too much that waits for it is refused', async t => {
  const { journal, files, health, record } = await slowJournal(t, { maxWaitingBytes: 200 });
  await record();
  t.doesNotThrow(() => journal.requireRoom());
  for (let i = 0; i < 10; i++) await record();
  t.throws(() => journal.requireRoom(), {
    code: 'storage_failed',
    message: /the disk is slow; \d+ bytes of earlier operations wait/,
  });
  await until(() => health.degraded);
  t.match(health.report(), { reason: /ETIMEDOUT/, bytes_waiting: journal.bytesWaiting });
  while (files.late.length > 0) files.finishWrites();
  t.notOk(health.degraded);
  t.equal(health.report().bytes_waiting, 0);
  t.doesNotThrow(() => journal.requireRoom());
  journal.close();
});

t.test('a checkpoint does not wait for a slow write, and the end writes again what hangs', async t => {
  const { journal, files, record, delivered, numbers } = await slowJournal(t);
  await record();
  const mark = journal.rotate();
  await record();
  t.same(delivered, [1]);
  journal.release(mark);
  files.finishWrites();
  t.same(delivered, [1, 2], 'what was being written is written to the new segment, with its reply');
  await record();
  t.equal(journal.close(), 0);
  t.same(delivered, [1, 2, 3, 4]);
  files.finishWrites();
  t.same([...new Set(await numbers())], [2, 3, 4], 'twice is as good as once');
});

t.test('a late write that fails is tried again; one that stops half way goes on where it was', async t => {
  const { journal, files, health, record, delivered, numbers } = await slowJournal(t);
  await record();
  files.fault = 'EIO';
  files.finishWrites();
  t.ok(health.degraded);
  t.same(delivered, [1, 2], 'replies leave, as on any disk that takes no writes');
  files.fault = undefined;
  await until(() => files.late.length > 0);
  files.room = 5;
  files.finishWrites();
  files.finishWrites();
  files.room = Number.POSITIVE_INFINITY;
  await until(() => {
    files.finishWrites();
    return !health.degraded;
  });
  await record();
  while (files.late.length > 0) files.finishWrites();
  t.same(await numbers(), [1, 2, 3]);
  t.same(delivered, [1, 2, 3]);
  journal.close();
});

t.test('synced: on a slow disk replies wait for write and sync', async t => {
  const folder = t.testdir();
  const { journal, files } = openJournal(folder, { slowWriteMs: -1, synced: true });
  files.waiting = [];
  const delivered: number[] = [];
  for (let n = 1; n <= 3; n++) {
    journal.append('step', 'sA', n, 'Left');
    journal.deliver(() => delivered.push(n));
    await nextTurn();
  }
  files.finishSyncs();
  await until(() => delivered.length === 1);
  while (delivered.length < 3) {
    files.finishWrites();
    files.finishSyncs();
    await nextTurn();
  }
  t.same(delivered, [1, 2, 3]);
  journal.close();
});

/** A disk with writes that take longer than a sound disk's, and end when the test says so once that is known. */
class SlowFiles extends FaultyFiles {
  override write(...given: Parameters<FaultyFiles['write']>): number {
    const end = performance.now() + 25;
    while (performance.now() < end);
    return super.write(...given);
  }
}

t.test('on a slow disk frames of a WebSocket that read are answered, those that act wait', async t => {
  const files = new SlowFiles();
  const app = await createApp(
    { logLevel: 'silent', data: t.testdir(), checkpointSeconds: 0 },
    { registry: testRegistry(), journalFiles: files },
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
  const writing = setInterval(() => files.finishWrites());
  t.same(await answered, ['step', 'acts']);
  clearInterval(writing);
});

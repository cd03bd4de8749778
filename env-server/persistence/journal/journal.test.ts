import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import t from 'tap';
import { until } from '../../../test/until.test-data.ts';
import { copied, filesOf, openJournal, replayed } from './journal.test-data.ts';
import { journalDisk } from './journal-files.ts';

const FIRST = '0000000001-sqlite-0.journal';

t.test('records of one turn go out in one write, and replies wait for it', async t => {
  const folder = t.testdir();
  const { journal, disk } = openJournal(folder);
  const order: string[] = [];
  journal.deliver(() => order.push('before'));
  t.same(order, ['before'], 'nothing waits where nothing was recorded');
  for (let n = 1; n <= 100; n++) {
    journal.append('s', 'sA', n, '"Left"');
    journal.deliver(() => order.push(String(disk.writes)));
  }
  t.equal(order.length, 1, 'no reply leaves before the write');
  await nextTurn();
  t.equal(disk.writes, 1);
  t.equal(order.length, 101);
  t.ok(order.slice(1).every(writes => writes === '1'));
  journal.close();
  const { records, findings } = await replayed(folder);
  t.equal(records.length, 100);
  t.equal(records[99], 'step sA 100 "Left"');
  t.same(findings, { faults: [], incomplete: undefined });
  for (const name of readdirSync(folder)) t.equal(statSync(join(folder, name)).mode & 0o777, 0o600, name);
});

t.test('records beyond ASCII are read back, and their bytes in UTF-8 counted', async t => {
  const folder = t.testdir();
  const { journal } = openJournal(folder);
  const bodies = ['"é"', '"√"', '"走 😀"', '"Left"'];
  for (const [index, body] of bodies.entries()) journal.append('s', 'sA', index + 1, body);
  const line = Buffer.byteLength('ssA 1 \n');
  const bytes = bodies.reduce((sum, body) => sum + line + Buffer.byteLength(body), 0);
  t.equal(journal.bytesWaiting, bytes);
  await nextTurn();
  t.equal(journal.bytesOnDisk, bytes);
  journal.close();
  const { records, findings } = await replayed(folder);
  t.same(
    records,
    bodies.map((body, index) => `step sA ${index + 1} ${body}`),
  );
  t.same(findings.faults, []);
});

for (const synced of [false, true]) {
  t.test(`delivered replies survive SIGKILL${synced ? ', synced' : ''}`, async t => {
    const folder = mkdtempSync(join(tmpdir(), 'ragen-journal-'));
    t.teardown(() => rmSync(folder, { recursive: true }));
    const program = `
    import { Journal } from ${JSON.stringify(new URL('./journal.ts', import.meta.url).href)};
    import { JournalFiles } from ${JSON.stringify(new URL('./journal-files.ts', import.meta.url).href)};
    import { PersistenceHealth } from ${JSON.stringify(new URL('../persistence-health.ts', import.meta.url).href)};
    const files = new JournalFiles(${JSON.stringify(folder)}, ${synced});
    const settings = { synced: ${synced}, maxBytes: 1e9, maxWaitingBytes: 1e9, slowWriteMs: 20 };
    const journal = new Journal(settings, { files, health: new PersistenceHealth(), onPressure() {} });
    let n = 0;
    const turn = () => {
      for (let i = 0; i < 100; i++) journal.append('s', 'sA', ++n, String(3));
      journal.deliver(n < 1000 ? turn : () => process.kill(process.pid, 'SIGKILL'));
    };
    turn();
    setInterval(() => {}, 1000);
  `;
    const script = join(t.testdir({ 'program.ts': program }), 'program.ts');
    const { signal, stderr } = spawnSync(process.execPath, [script], { timeout: 60_000 });
    t.equal(signal, 'SIGKILL', String(stderr));
    const { records, findings } = await replayed(folder);
    t.equal(records.length, 1000);
    t.same(findings.faults, []);
  });
}

t.test('a checkpoint deletes the files that it covers', async t => {
  const folder = t.testdir();
  const { journal, files } = openJournal(folder);
  const text = 'x'.repeat(100);
  for (let n = 1; n <= 60; n++) {
    journal.append('s', 'sA', n, JSON.stringify(text));
    await nextTurn();
    if (n % 20 === 0) files.rotate();
  }
  t.equal(filesOf(folder).length, 3);
  const before = journal.bytesOnDisk;
  const mark = files.rotate();
  journal.append('s', 'sA', 61, JSON.stringify(text));
  await nextTurn();
  files.release(mark);
  t.equal(filesOf(folder).length, 1);
  t.ok(journal.bytesOnDisk < before / 50, 'what is deleted is not counted');
  files.release(files.rotate());
  t.equal(journal.bytesOnDisk, 0);
  journal.append('s', 'sA', 62, JSON.stringify(text));
  await nextTurn();
  journal.close();
  const { records, findings } = await replayed(folder);
  t.same(
    records.map(record => record.split(' ')[2]),
    ['62'],
  );
  t.same(findings.faults, []);
});

t.test(
  'near the limit on disk a checkpoint is requested; at it operations are refused, and none is lost',
  async t => {
    const folder = t.testdir();
    const { journal, files, pressure } = openJournal(folder, { maxBytes: 10_000 });
    let n = 0;
    const refused = async () => {
      for (;;) {
        try {
          journal.requireRoom();
        } catch (error) {
          return error;
        }
        journal.append('s', 'sA', ++n, JSON.stringify('x'.repeat(100)));
        await nextTurn();
      }
    };
    t.match(await refused(), { code: 'storage_full', status: 507, message: /the most it may have is 10000/ });
    t.ok(pressure.count > 0);
    t.ok(journal.bytesOnDisk < 11_000);
    t.equal((await copied(t, folder)).records.length, n);
    files.release(files.rotate());
    t.doesNotThrow(() => journal.requireRoom());
    t.equal(journal.close(), 0);
  },
);

t.test(
  'a full disk: replies leave, records wait in memory, are reported, and are written when there is room',
  async t => {
    const folder = t.testdir();
    const { journal, health, disk } = openJournal(folder, { maxWaitingBytes: 1000 });
    journal.append('s', 'sA', 1, '"Left"');
    await nextTurn();
    disk.fault = 'ENOSPC';
    let delivered = 0;
    for (let n = 2; n <= 10; n++) {
      journal.append('s', 'sA', n, '"Right"');
      journal.deliver(() => delivered++);
      await nextTurn();
    }
    t.equal(delivered, 9);
    const report = health.report();
    t.match(report, { state: 'degraded', reason: /ENOSPC/, since: /^\d{4}-/ });
    t.equal(report.bytes_waiting, journal.bytesWaiting);
    t.ok(report.bytes_waiting > 100);
    t.match((await copied(t, folder)).findings, {
      incomplete: 'the disk took no writes when the server ended',
      faults: [],
    });
    t.doesNotThrow(() => journal.requireRoom(), 'there is room in memory');
    for (let n = 11; journal.bytesWaiting < 1000; n++) journal.append('s', 'sA', n, '"Right"');
    t.throws(() => journal.requireRoom(), { code: 'storage_full', message: /ENOSPC.*wait to be written/ });

    disk.fault = undefined;
    await until(() => !health.degraded);
    t.equal(journal.bytesWaiting, 0);
    t.equal(health.report().bytes_waiting, 0);
    t.doesNotThrow(() => journal.requireRoom());
    t.equal(filesOf(folder).length, 1, 'the file is continued');
    journal.close();
    const { records, findings } = await replayed(folder);
    t.same(
      records.map(record => Number(record.split(' ')[2])),
      records.map((_, index) => index + 1),
    );
    t.same(findings, { faults: [], incomplete: undefined });
  },
);

t.test(
  'records that an earlier process could not write stay known until a checkpoint covers them',
  async t => {
    const folder = t.testdir();
    const first = openJournal(folder);
    first.journal.append('s', 'sA', 1, '"Left"');
    await nextTurn();
    first.disk.fault = 'ENOSPC';
    first.journal.append('s', 'sA', 2, '"Left"');
    first.journal.close();
    const second = openJournal(folder);
    second.journal.append('s', 'sB', 1, '"Left"');
    await nextTurn();
    t.match((await copied(t, folder)).findings, { incomplete: /took no writes/ });
    second.files.release(second.files.rotate());
    second.journal.append('s', 'sB', 2, '"Left"');
    second.journal.close();
    t.same((await replayed(folder)).findings, { faults: [], incomplete: undefined });
  },
);

for (const fault of ['EIO', 'EROFS', 'EBADF']) {
  t.test(`${fault}: waiting records go whole to another file`, async t => {
    const folder = t.testdir();
    const { journal, health, disk } = openJournal(folder);
    journal.append('s', 'sA', 1, '"Left"');
    await nextTurn();
    disk.fault = fault;
    journal.append('s', 'sA', 2, '"Left"');
    await nextTurn();
    t.match(health.report(), { state: 'degraded', reason: new RegExp(fault) });
    t.match(health.problem(), { code: 'storage_failed', status: 503 });
    await until(() => health.parts.journal.failures >= 2);
    disk.fault = undefined;
    await until(() => !health.degraded);
    journal.append('s', 'sA', 3, '"Left"');
    journal.close();
    const { records, findings } = await replayed(folder);
    t.same(
      records.map(record => record.slice(0, 9)),
      ['step sA 1', 'step sA 2', 'step sA 3'],
    );
    t.same(findings, { faults: [], incomplete: undefined });
    t.equal(filesOf(folder).length, 2, 'tries leave no empty files behind');
  });
}

t.test('a disk that is full at the end: what could not be written is counted', async t => {
  const folder = t.testdir();
  const { journal, disk } = openJournal(folder);
  disk.fault = 'ENOSPC';
  journal.append('s', 'sA', 1, '"Left"');
  const lost = journal.close();
  t.ok(lost > 0);
});

t.test('synced: turns share a transaction, replies wait for it', async t => {
  const folder = t.testdir();
  const { journal, disk } = openJournal(folder, { synced: true });
  disk.holds = true;
  const delivered: number[] = [];
  for (let n = 1; n <= 5; n++) {
    journal.append('s', 'sA', n, '"Left"');
    journal.deliver(() => delivered.push(n));
    await nextTurn();
  }
  t.same(delivered, []);
  disk.finishWrites();
  await until(() => delivered.length === 1);
  disk.finishWrites();
  await until(() => delivered.length === 5);
  t.same(delivered, [1, 2, 3, 4, 5]);
  t.equal(disk.writes, 2, 'four turns had one write in common');
  journal.close();
});

t.test(
  'synced: after a fault nothing new is begun, and everything is written again before replies leave',
  async t => {
    const folder = t.testdir();
    const { journal, health, disk } = openJournal(folder, { synced: true });
    disk.fault = 'EIO';
    let delivered = false;
    journal.append('s', 'sA', 1, '"Left"');
    journal.deliver(() => {
      delivered = true;
    });
    await until(() => health.degraded);
    t.notOk(delivered);
    t.throws(() => journal.requireRoom(), { code: 'storage_failed' }, 'nothing new is begun');
    journal.deliver(() => t.ok(delivered, 'replies keep their order'));
    disk.fault = undefined;
    await until(() => delivered);
    t.notOk(health.degraded);
    journal.close();
    t.same((await replayed(folder)).records, ['step sA 1 "Left"']);
  },
);

t.test('synced: the thread keeps records, and the end keeps what it has not yet written', async t => {
  const folder = t.testdir();
  const { journal } = openJournal(folder, { synced: true });
  journal.append('s', 'sA', 1, '"Left"');
  await nextTurn();
  journal.append('s', 'sA', 2, '"Left"');
  t.equal(journal.close(), 0);
  // The thread lets its file go when it has ended.
  let records: readonly string[] = [];
  await until(async () => {
    ({ records } = await copied(t, folder));
    return new Set(records).size === 2;
  });
  t.same([...new Set(records)], ['step sA 1 "Left"', 'step sA 2 "Left"'], 'twice is as good as once');
});

t.test('a thread writes turns to a file, and says how long it took', async t => {
  const folder = t.testdir();
  const disk = journalDisk(folder);
  const head = { format: 1, boot: '', synced: true };
  const path = join(folder, FIRST);
  const turn = (n: number) => [{ records: `ssA ${n} "Left"\n`, count: 1 }];
  t.type(await disk.writeLater(path, head, turn(1)), 'number');
  await disk.writeLater(path, head, turn(2));
  await t.rejects(disk.writeLater(join(folder, 'no', 'folder.journal'), head, turn(3)), { code: 'ENOENT' });
  const cannotOpen = { code: 'ERR_SQLITE_ERROR', errcode: 14 };
  await t.rejects(disk.writeLater(folder, head, turn(3)), cannotOpen);
  disk.close();
  await until(async () => {
    const { records } = await copied(t, folder);
    return records.length === 2;
  });
});

import { spawnSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import t from 'tap';
import { until } from '../../../test/until.test-data.ts';
import { openJournal, recordBytes, replayed } from './journal.test-data.ts';
import { listSegments } from './segments.ts';

const FIRST = '0000000001-first-0.journal';

t.test('records of one turn go out in one write, and replies wait for it', async t => {
  const folder = t.testdir();
  const { journal, files } = openJournal(folder);
  const order: string[] = [];
  journal.deliver(() => order.push('before'));
  t.same(order, ['before'], 'nothing waits where nothing was recorded');
  for (let n = 1; n <= 100; n++) {
    journal.append('step', 'sA', n, 'Left');
    journal.deliver(() => order.push(String(files.writes)));
  }
  t.equal(order.length, 1, 'no reply leaves before the write');
  await nextTurn();
  t.equal(files.writes, 1);
  t.equal(order.length, 101);
  t.ok(order.slice(1).every(writes => writes === '1'));
  const { records, findings } = await replayed(folder);
  t.equal(records.length, 100);
  t.equal(records[99], 'step sA 100 "Left"');
  t.same(findings, { faults: [], incomplete: undefined });
  t.equal(statSync(join(folder, FIRST)).mode & 0o777, 0o600);
  journal.close();
});

t.test('delivered replies survive SIGKILL', async t => {
  const folder = t.testdir();
  const program = `
    import { openJournal } from ${JSON.stringify(new URL('./journal.test-data.ts', import.meta.url).href)};
    const { journal } = openJournal(${JSON.stringify(folder)});
    for (let n = 1; n <= 1000; n++) journal.append('step', 'sA', n, 3);
    journal.deliver(() => process.kill(process.pid, 'SIGKILL'));
  `;
  const { signal, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program]);
  t.equal(signal, 'SIGKILL', String(stderr));
  const { records, findings } = await replayed(folder);
  t.equal(records.length, 1000);
  t.same(findings.faults, []);
});

t.test('segments follow one another by size, and a checkpoint deletes those that it covers', async t => {
  const folder = t.testdir();
  const { journal, pressure } = openJournal(folder, { segmentBytes: 1000, maxBytes: 20_000 });
  const text = 'x'.repeat(100);
  for (let n = 1; n <= 60; n++) {
    journal.append('step', 'sA', n, text);
    await nextTurn();
  }
  t.ok(listSegments(folder).length >= 5);
  t.equal(journal.bytesOnDisk, recordBytes(folder));
  t.equal(pressure.count, 0);
  const mark = journal.rotate();
  journal.append('step', 'sA', 61, text);
  await nextTurn();
  journal.release(mark);
  t.same(
    (await replayed(folder)).records.map(record => record.split(' ')[2]),
    ['61'],
  );
  t.equal(journal.bytesOnDisk, recordBytes(folder));
  journal.close();
});

t.test(
  'near the limit on disk a checkpoint is asked for; at it operations are refused, and none is lost',
  async t => {
    const folder = t.testdir();
    const { journal, pressure } = openJournal(folder, { segmentBytes: 1000, maxBytes: 10_000 });
    let n = 0;
    const refused = async () => {
      for (;;) {
        try {
          journal.requireRoom();
        } catch (error) {
          return error;
        }
        journal.append('step', 'sA', ++n, 'x'.repeat(100));
        await nextTurn();
      }
    };
    t.match(await refused(), { code: 'storage_full', status: 507, message: /the most it may have is 10000/ });
    t.ok(pressure.count > 0);
    t.ok(journal.bytesOnDisk < 11_000);
    t.equal((await replayed(folder)).records.length, n);
    journal.release(journal.rotate());
    t.doesNotThrow(() => journal.requireRoom());
    t.equal(journal.close(), 0);
  },
);

t.test(
  'a full disk: replies leave, records wait in memory, are reported, and are written when there is room',
  async t => {
    const folder = t.testdir();
    const { journal, health, files } = openJournal(folder, { maxWaitingBytes: 1000 });
    journal.append('step', 'sA', 1, 'Left');
    await nextTurn();
    files.room = 20;
    let delivered = 0;
    for (let n = 2; n <= 10; n++) {
      journal.append('step', 'sA', n, 'Right');
      journal.deliver(() => delivered++);
      await nextTurn();
    }
    t.equal(delivered, 9);
    t.equal(statSync(join(folder, FIRST)).size, listSegments(folder)[0].bytes);
    const report = health.report();
    t.match(report, { state: 'degraded', reason: /ENOSPC/, since: /^\d{4}-/ });
    t.equal(report.bytes_waiting, journal.bytesWaiting);
    t.ok(report.bytes_waiting > 100);
    t.match((await replayed(folder)).findings, {
      incomplete: 'the disk took no writes when the server ended',
      faults: [{ kind: 'torn', file: FIRST }],
    });
    t.doesNotThrow(() => journal.requireRoom(), 'there is room in memory');
    for (let n = 11; journal.bytesWaiting < 1000; n++) journal.append('step', 'sA', n, 'Right');
    t.throws(() => journal.requireRoom(), { code: 'storage_full', message: /ENOSPC.*wait to be written/ });

    files.room = Number.POSITIVE_INFINITY;
    await until(() => !health.degraded);
    t.equal(journal.bytesWaiting, 0);
    t.equal(health.report().bytes_waiting, 0);
    t.doesNotThrow(() => journal.requireRoom());
    const { records, findings } = await replayed(folder);
    t.same(
      records.map(record => Number(record.split(' ')[2])),
      records.map((_, index) => index + 1),
    );
    t.same(findings, { faults: [], incomplete: undefined });
    journal.close();
  },
);

for (const fault of ['EIO', 'EROFS', 'EBADF']) {
  t.test(`${fault}: what waits goes whole to another segment`, async t => {
    const folder = t.testdir();
    const { journal, health, files } = openJournal(folder);
    journal.append('step', 'sA', 1, 'Left');
    await nextTurn();
    files.fault = fault;
    journal.append('step', 'sA', 2, 'Left');
    await nextTurn();
    t.match(health.report(), { state: 'degraded', reason: new RegExp(fault) });
    t.match(health.problem(), { code: 'storage_failed', status: 503 });
    await until(() => health.parts.journal.failures >= 2);
    files.fault = undefined;
    await until(() => !health.degraded);
    journal.append('step', 'sA', 3, 'Left');
    await nextTurn();
    const { records, findings } = await replayed(folder);
    t.same(
      records.map(record => record.slice(0, 9)),
      ['step sA 1', 'step sA 2', 'step sA 3'],
    );
    t.same(findings, { faults: [], incomplete: undefined });
    t.equal(listSegments(folder).length, 2, 'tries leave no empty files behind');
    journal.close();
  });
}

t.test('a disk that is full at the end: what could not be written is counted', async t => {
  const folder = t.testdir();
  const { journal, files } = openJournal(folder);
  files.room = 0;
  journal.append('step', 'sA', 1, 'Left');
  const lost = journal.close();
  t.ok(lost > 0);
});

t.test('synced: turns share a sync, replies wait for it', async t => {
  const folder = t.testdir();
  const { journal, files } = openJournal(folder, { synced: true });
  files.waiting = [];
  const delivered: number[] = [];
  for (let n = 1; n <= 5; n++) {
    journal.append('step', 'sA', n, 'Left');
    journal.deliver(() => delivered.push(n));
    await nextTurn();
  }
  t.equal(files.writes, 5);
  t.same(delivered, []);
  files.finishSyncs();
  await until(() => delivered.length === 1);
  files.finishSyncs();
  await until(() => delivered.length === 5);
  t.same(delivered, [1, 2, 3, 4, 5]);
  t.equal(files.syncs, 2, 'four turns had one sync in common');
  journal.close();
});

t.test(
  'synced: after a failed sync everything is written again to another segment before replies leave',
  async t => {
    const folder = t.testdir();
    const { journal, health, files } = openJournal(folder, { synced: true });
    files.syncFault = 'EIO';
    let delivered = false;
    journal.append('step', 'sA', 1, 'Left');
    journal.deliver(() => {
      delivered = true;
    });
    await until(() => health.degraded);
    t.notOk(delivered);
    t.throws(() => journal.requireRoom(), { code: 'storage_failed' }, 'nothing new is begun');
    journal.deliver(() => t.ok(delivered, 'replies keep their order'));
    files.syncFault = undefined;
    await until(() => delivered);
    t.notOk(health.degraded);
    const { records } = await replayed(folder);
    t.ok(records.length >= 2 && new Set(records).size === 1, 'twice is as good as once');
    journal.close();
  },
);

t.test(
  'synced: what was not yet synced when a write fails is written again before its reply leaves',
  async t => {
    const folder = t.testdir();
    const { journal, health, files } = openJournal(folder, { synced: true });
    files.waiting = [];
    const delivered: number[] = [];
    const record = async (n: number) => {
      journal.append('step', 'sA', n, 'Left');
      journal.deliver(() => delivered.push(n));
      await nextTurn();
    };
    await record(1);
    files.fault = 'EIO';
    await record(2);
    t.ok(health.degraded);
    files.fault = undefined;
    await until(() => files.waiting!.length === 2);
    t.same(delivered, [], 'the sync of the segment that was left is not waited for');
    files.finishSyncs();
    await until(() => delivered.length > 0);
    t.same(delivered, [1, 2]);
    const [, second] = listSegments(folder);
    const { records } = await replayed(folder);
    t.same(
      records.map(record => Number(record.split(' ')[2])),
      [1, 1, 2],
      `${second.name} has both`,
    );
    journal.close();
  },
);

t.test('synced: a segment that is left is synced first', async t => {
  const folder = t.testdir();
  const { journal, files } = openJournal(folder, { synced: true });
  files.waiting = [];
  let delivered = false;
  journal.append('step', 'sA', 1, 'Left');
  journal.deliver(() => {
    delivered = true;
  });
  await nextTurn();
  journal.rotate();
  t.ok(delivered);
  files.finishSyncs();
  journal.close();
});

t.test(
  'several processes: each has its own files, and what earlier runs left is deleted when all have it',
  async t => {
    const folder = t.testdir();
    for (const index of [0, 1]) {
      const { journal } = openJournal(folder, { writer: { run: 'old', index, count: 2 } });
      journal.append('step', `s${index}`, 1, index);
      journal.close();
    }
    const workers = [0, 1, 2].map(index => openJournal(folder, { writer: { run: 'new', index, count: 3 } }));
    for (const { journal } of workers) {
      t.same(
        journal.inherited.map(({ run }) => run),
        ['old', 'old'],
      );
      journal.append('acknowledge', 'sX', 1, undefined);
    }
    await nextTurn();
    const again = openJournal(folder, { writer: { run: 'new', index: 1, count: 3 } });
    t.same(
      again.journal.inherited.map(({ run, index }) => `${run} ${index}`),
      ['old 0', 'old 1', 'new 1'],
      'started again it has its own, but not those of others that still run',
    );
    workers[0].journal.releaseInherited();
    workers[2].journal.releaseInherited();
    t.equal(listSegments(folder).filter(({ run }) => run === 'old').length, 2, 'one still needs them');
    again.journal.releaseInherited();
    t.same(
      readdirSync(folder).filter(name => !/-new-[02]\.journal$/.test(name)),
      [],
    );
    for (const { journal } of [...workers, again]) journal.close();
  },
);

import { mkdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import { pino } from 'pino';
import t from 'tap';
import { LeftRecords, replayJournal } from '../../store/left-records.ts';
import { openJournal, replayed } from './journal.test-data.ts';
import { journalDisk, listJournal } from './journal-files.ts';

/** Milliseconds of applying a record. */
const MS_PER_RECORD = 0.002;
const FIRST = '0000000001-sqlite-0.journal';
const SEGMENT = '0000000001-first-0.journal';

/** Records that count, the findings, and the sessions that are rolled back; sD is one that the database has. */
async function play(folder: string, covered: readonly (readonly [string, number])[] = [['sD', 4]]) {
  const left = new LeftRecords();
  const { signal } = new AbortController();
  const log = pino({ level: 'silent' });
  const findings = await left.read(folder, listJournal(folder), covered, () => undefined, { log, signal });
  const behind = ['sA', 'sB', 'sC', 'sD'].filter(id => left.isBehind(id));
  const applied = [...left.ids()].flatMap(id => left.take(id).entries.map(({ n }) => `${id}${n}`)).sort();
  const kinds = findings.faults.map(({ kind, file }) => `${kind} ${file}`);
  return { applied, findings, kinds, behind };
}

/** Turns of one record each, written by a process that is killed: nothing is moved from the write-ahead log. */
async function written(folder: string, records: readonly (readonly [id: string, n: number])[]) {
  const { journal } = openJournal(folder);
  for (const [id, n] of records) {
    journal.append('s', id, n, '"Left"');
    await nextTurn();
  }
  journal.close();
}

const change = (folder: string, sql: string) => {
  const database = new DatabaseSync(join(folder, FIRST));
  database.exec(sql);
  database.close();
};

t.test('a file that has lost its end is damaged, wherever it was cut', async t => {
  const folder = t.testdir();
  const log = join(folder, `${FIRST}-wal`);
  const disk = journalDisk(folder);
  // A file that is still open has its turns in the write-ahead log.
  const file = disk.create(join(folder, FIRST), { format: 1, boot: '', synced: false });
  for (const id of ['sA', 'sB']) file.write([{ records: `s${id} 1 "Left"\n`, count: 1 }]);
  const [base, whole] = [readFileSync(join(folder, FIRST)), readFileSync(log)];
  file.close();
  const state = Buffer.alloc(24);
  state.writeDoubleLE(1, 0);
  state.writeDoubleLE(2, 8);
  const restored = (size: number) => {
    writeFileSync(join(folder, FIRST), base);
    writeFileSync(log, whole.subarray(0, size));
    writeFileSync(join(folder, 'state'), state);
  };
  restored(whole.length);
  t.match(await play(folder), { applied: ['sA1', 'sB1'], kinds: [], behind: [] });
  for (let size = whole.length - 1; size > 0; size -= 1009) {
    restored(size);
    const { kinds, behind, applied } = await play(folder);
    t.equal(kinds.length, 1, `${size} bytes`);
    t.match(kinds[0], /^(cut|unreadable)/);
    t.same(
      behind,
      ['sD', ...applied.map(name => name.slice(0, 2))].sort(),
      'its sessions may have had more records',
    );
  }
  restored(0);
  rmSync(log);
  t.match((await play(folder)).kinds, [/^(cut|unreadable)/]);
  writeFileSync(join(folder, FIRST), '');
  t.match((await play(folder)).kinds, [`cut ${FIRST}`]);
  writeFileSync(join(folder, FIRST), 'no database, no journal');
  t.match((await play(folder)).kinds, [`unreadable ${FIRST}`]);
});

t.test(
  'a turn that was being written when the process died is dropped: no reply had left for it',
  async t => {
    const folder = t.testdir();
    await written(folder, [['sA', 1]]);
    change(
      folder,
      `INSERT INTO turns VALUES (2, 1, ${crc32('ssA 2 "Left"\n', 1)}, 'ssA 2 "Left"' || char(10))`,
    );
    t.match(
      await play(folder),
      { applied: ['sA1', 'sA2'], kinds: [], behind: [] },
      'or kept, where it is whole',
    );
  },
);

t.test('a file that is gone is damage; one that a checkpoint has deleted is none', async t => {
  const folder = t.testdir();
  const { journal, files } = openJournal(folder);
  for (let n = 1; n <= 5; n++) {
    journal.append('s', 'sA', n, '"Left"');
    await nextTurn();
    files.rotate();
  }
  journal.close();
  const names = listJournal(folder).map(({ name }) => name);
  t.equal(names.length, 5);
  const faults = async () => (await play(folder)).kinds;
  t.same(await faults(), []);
  rmSync(join(folder, names[0]));
  t.same(await faults(), [], 'a checkpoint deletes the oldest first');
  rmSync(join(folder, names[2]));
  t.same(await faults(), [`missing ${names[2]}`]);
  rmSync(join(folder, names[4]));
  t.same(await faults(), [`missing ${names[4]}`, `missing ${names[2]}`]);
  rmSync(join(folder, 'state'));
  t.same(await faults(), ['missing state', `missing ${names[2]}`]);
});

t.test('a damaged turn is named and costs only what follows for its sessions', async t => {
  const records = [
    ['sA', 1],
    ['sB', 1],
    ['sA', 2],
    ['sB', 2],
    ['sA', 3],
    ['sB', 3],
    ['sC', 1],
  ] as const;
  const damaged = async (sql: string) => {
    const folder = t.testdir();
    await written(folder, records);
    t.same((await play(folder)).behind, []);
    change(folder, sql);
    return play(folder);
  };
  const action = await damaged(`UPDATE turns SET records = replace(records, 'Left', 'Lefs') WHERE turn = 3`);
  t.same(action.applied, ['sA1', 'sB1', 'sB2', 'sB3', 'sC1']);
  t.match(action.findings.faults, [{ kind: 'corrupt', file: FIRST, offset: 3, sessionIds: ['sA'] }]);
  t.same(action.behind, ['sA']);
  const last = await damaged(`UPDATE turns SET crc = crc + 1 WHERE turn = 6`);
  t.same(last.applied, ['sA1', 'sA2', 'sA3', 'sB1', 'sB2', 'sC1']);
  t.same(last.behind, ['sB'], 'also where nothing of that session follows');
  const all = ['sA', 'sB', 'sD'];
  const nameless = await damaged(`UPDATE turns SET records = 's?B 3 "Left"' || char(10) WHERE turn = 6`);
  t.same(nameless.behind, all, 'the session is unknown: all that have no record after it');
  const joined = await damaged(`UPDATE turns SET count = 2, crc = 1 WHERE turn = 6`);
  t.same(joined.behind, all, 'also where records may have been joined');
  const gone = await damaged('DELETE FROM turns WHERE turn = 6');
  t.same(gone.behind, all, 'and where a turn is gone');
});

t.test('duplicate and covered records count once', async t => {
  const folder = t.testdir();
  await written(
    folder,
    [1, 2, 3, 3, 4, 6, 5].map(n => ['sA', n] as const),
  );
  t.match(await play(folder, [['sA', 2]]), { applied: ['sA3', 'sA4'], kinds: [], behind: ['sA'] });
  t.match(await play(folder, [['sA', 5]]), { applied: ['sA6'], behind: [] });
});

t.test('replaying a journal does not block other work', async t => {
  const folder = t.testdir();
  const { journal } = openJournal(folder);
  for (let n = 1; n <= 20_000; n++) journal.append('s', 'sA', n, String(n));
  journal.close();
  let turns = 0;
  let done = false;
  const count = () => {
    turns++;
    if (!done) setImmediate(count);
  };
  setImmediate(count);
  let read = 0;
  const findings = { faults: [], incomplete: undefined };
  for await (const _ of replayJournal(folder, listJournal(folder), findings)) {
    read++;
    const end = performance.now() + MS_PER_RECORD;
    while (performance.now() < end);
  }
  done = true;
  t.equal(read, 20_000);
  t.ok(turns >= 5, `${turns} turns`);
});

t.test('a file of another version is named, not guessed at', async t => {
  const folder = t.testdir();
  await written(folder, [['sA', 1]]);
  change(folder, `UPDATE head SET json = '{"format":99,"boot":"","synced":true}'`);
  const { records, findings } = await replayed(folder);
  t.same(records, []);
  t.match(findings.faults, [{ kind: 'unreadable', reason: /another version/ }]);
});

t.test('after the machine went down the last records may be missing, unless they were synced', async t => {
  for (const synced of [false, true]) {
    const folder = t.testdir();
    await written(folder, [['sA', 1]]);
    change(folder, `UPDATE head SET json = '{"format":1,"boot":"another","synced":${synced}}'`);
    t.same((await play(folder)).behind, synced ? [] : ['sA', 'sD']);
  }
});

/** A frame of a segment as earlier servers wrote it. */
function frame(payload: string): Buffer {
  const body = Buffer.from(payload);
  const head = Buffer.alloc(9);
  head[0] = 0x1e;
  head.writeUInt32LE(body.length, 1);
  head.writeUInt32LE(crc32(body, body.length), 5);
  return Buffer.concat([head, body]);
}

const HEAD = frame('h- 0 {"format":1,"boot":"","synced":false,"padded":true}');
const LEGACY = ['ssA 1 "Left"', 'ssB 1 "Left"', 'ssA 2 "Left"', 'ssB 2 "Left"'].map(frame);

const padded = (...frames: readonly Buffer[]) => {
  const bytes = Buffer.concat([Buffer.of(0), ...frames]);
  return Buffer.concat([bytes, Buffer.alloc(64 * 1024 - (bytes.length % (64 * 1024)))]);
};

t.test('segments of earlier servers are read, and their damage is found', async t => {
  const folder = t.testdir();
  const sound = padded(HEAD, ...LEGACY);
  const play1 = (bytes: Buffer) => {
    writeFileSync(join(folder, SEGMENT), bytes);
    return play(folder);
  };
  t.match(await play1(sound), { applied: ['sA1', 'sA2', 'sB1', 'sB2'], kinds: [], behind: [] });
  const starts = [1 + HEAD.length];
  for (const { length } of LEGACY) starts.push(starts.at(-1)! + length);
  const flipped = Buffer.from(sound);
  flipped[starts[3] + 20] ^= 1;
  t.match(await play1(flipped), {
    applied: ['sA1', 'sA2', 'sB1'],
    findings: { faults: [{ kind: 'corrupt', offset: starts[3], sessionIds: ['sB'] }] },
    behind: ['sB'],
  });
  for (let at = starts[3] + 1; at < starts[4]; at++)
    t.match(await play1(Buffer.from(sound).fill(0, at)), { kinds: [`torn ${SEGMENT}`], behind: [] });
  for (let size = starts[2]; size < starts[4]; size++)
    t.match((await play1(sound.subarray(0, size))).kinds.at(-1), `cut ${SEGMENT}`);
  t.match((await play1(padded(frame('h- 0 {"format":99}')))).findings.faults, [
    { reason: /another version/ },
  ]);
  const unwritten = Buffer.from(sound);
  unwritten[0] = 1;
  t.match((await play1(unwritten)).findings, { incomplete: /took no writes/ });
  unwritten[0] = 2;
  t.match((await play1(unwritten)).kinds, ['missing 0000000002-first-0.journal']);
});

t.test(
  'a new journal follows the segments of an earlier server, and a checkpoint deletes both kinds',
  async t => {
    const folder = t.testdir();
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, SEGMENT), padded(HEAD, ...LEGACY));
    writeFileSync(join(folder, `${SEGMENT}.0of2`), '');
    const { journal, files } = openJournal(folder);
    t.equal(files.inherited.length, 1);
    journal.append('s', 'sA', 3, '"Left"');
    await nextTurn();
    t.same(
      listJournal(folder).map(({ name, isTurns }) => `${name} ${isTurns}`),
      [`${SEGMENT} false`, '0000000002-sqlite-0.journal true'],
    );
    files.release(2);
    journal.close();
    t.match(await play(folder), { applied: [], kinds: [] });
    t.same(
      listJournal(folder).map(({ number }) => number),
      [2],
    );
    t.throws(() => statSync(join(folder, `${SEGMENT}.0of2`)));
    truncateSync(join(folder, 'state'), 3);
    t.match((await play(folder)).kinds, ['missing state']);
  },
);

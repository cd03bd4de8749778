import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import t from 'tap';
import { SessionContinuity } from './continuity.ts';
import { FrameBuffer } from './frames.ts';
import { openJournal, replayed } from './journal.test-data.ts';
import { type ReplayFindings, replayJournal } from './replay.ts';
import { listSegments } from './segments.ts';

/** Milliseconds of applying a record. */
const MS_PER_RECORD = 0.002;
const FIRST = '0000000001-first-0.journal';

/** A segment of two records: its bytes, where the second record begins, and where the zeros after it do. */
async function twoRecords(folder: string) {
  const { journal } = openJournal(folder);
  journal.append('step', 'sA', 1, 'Left');
  await nextTurn();
  const second = journal.bytesOnDisk;
  journal.append('step', 'sB', 1, 'Left');
  await nextTurn();
  const end = journal.bytesOnDisk;
  journal.close();
  return { bytes: readFileSync(join(folder, FIRST)), second, end };
}

t.test('a record that was not written to its end is dropped, wherever the write stopped', async t => {
  const folder = t.testdir();
  const { bytes, second, end } = await twoRecords(folder);
  t.ok(end < bytes.length, 'zeros follow the last record');
  for (let from = end - 1; from > second; from--) {
    writeFileSync(join(folder, FIRST), Buffer.from(bytes).fill(0, from));
    const { records, findings } = await replayed(folder);
    t.same(records, ['step sA 1 "Left"']);
    t.match(findings.faults, [{ kind: 'torn', file: FIRST, offset: second }]);
    t.equal(findings.faults.length, 1);
  }
});

t.test('a segment that has lost its end is damaged, wherever it was cut', async t => {
  const folder = t.testdir();
  const { bytes, second, end } = await twoRecords(folder);
  const play = async () => {
    const continuity = new SessionContinuity();
    const findings: ReplayFindings = { faults: [], incomplete: undefined };
    for await (const { record, position } of replayJournal(folder, listSegments(folder), findings)) {
      continuity.verdict(record, position);
    }
    return { kinds: findings.faults.map(({ kind }) => kind), behind: continuity.behind(findings).size };
  };
  for (let size = end; size >= second; size--) {
    writeFileSync(join(folder, FIRST), bytes.subarray(0, size));
    const { kinds, behind } = await play();
    t.equal(kinds.at(-1), 'cut', `${size} bytes`);
    t.equal(behind, size === end ? 2 : 1, `${size} bytes: its session may have had more records`);
  }
  writeFileSync(join(folder, FIRST), '');
  t.same((await play()).kinds, ['cut']);
  writeFileSync(join(folder, FIRST), bytes);
  t.same(await play(), { kinds: [], behind: 0 });
});

t.test('a segment that is gone is damage; one that a checkpoint has deleted is none', async t => {
  const folder = t.testdir();
  const { journal } = openJournal(folder, { segmentBytes: 300 });
  for (let n = 1; n <= 60; n++) {
    journal.append('step', 'sA', n, 'Left');
    await nextTurn();
  }
  journal.close();
  const names = listSegments(folder).map(({ name }) => name);
  t.ok(names.length > 4);
  const faults = async () =>
    (await replayed(folder)).findings.faults.map(({ kind, file }) => `${kind} ${file}`);
  t.same(await faults(), []);
  rmSync(join(folder, names[0]));
  t.same(await faults(), [], 'a checkpoint deletes the oldest first');
  rmSync(join(folder, names[2]));
  t.same(await faults(), [`missing ${names[2]}`]);
  rmSync(join(folder, names[names.length - 1]));
  t.same(await faults(), [`missing ${names[2]}`, `missing ${names[names.length - 1]}`]);
});

t.test('a damaged record is named and costs only what follows for its session', async t => {
  const folder = t.testdir();
  const { journal } = openJournal(folder);
  const starts: number[] = [];
  for (const [id, n] of [
    ['sA', 1],
    ['sB', 1],
    ['sA', 2],
    ['sB', 2],
    ['sA', 3],
    ['sB', 3],
    ['sC', 1],
  ] as const) {
    starts.push(journal.bytesOnDisk);
    journal.append('step', id, n, 'Left');
    await nextTurn();
  }
  journal.close();
  const path = join(folder, FIRST);
  const sound = readFileSync(path);
  const play = async (damaged: Buffer) => {
    writeFileSync(path, damaged);
    const continuity = new SessionContinuity();
    continuity.covers('sD', 4);
    const findings = { faults: [], incomplete: undefined };
    const applied: string[] = [];
    for await (const { record, position } of replayJournal(folder, listSegments(folder), findings)) {
      const { sessionId, n } = record;
      if (continuity.verdict(record, position) === 'apply') applied.push(`${sessionId}${n}`);
    }
    return { applied, findings, behind: [...continuity.behind(findings)].sort() };
  };
  const flipped = (at: number) => {
    const damaged = Buffer.from(sound);
    damaged[at] ^= 0x01;
    return damaged;
  };

  t.same((await play(sound)).behind, []);
  const action = await play(flipped(starts[3] - 2));
  t.same(action.applied, ['sA1', 'sB1', 'sB2', 'sB3', 'sC1']);
  t.match(action.findings.faults, [{ kind: 'corrupt', file: FIRST, offset: starts[2], sessionId: 'sA' }]);
  t.same(action.behind, ['sA']);

  const length = await play(flipped(starts[2] + 4));
  t.same(length.applied, action.applied, 'also where its length is damaged');
  t.same(length.behind, ['sA']);

  const last = await play(flipped(starts[5] + 18));
  t.same(last.applied, ['sA1', 'sB1', 'sA2', 'sB2', 'sA3', 'sC1']);
  t.same(last.behind, ['sB'], 'also where nothing of that session follows');

  const nameless = await play(flipped(starts[5] + 10));
  t.same(
    nameless.behind,
    ['sA', 'sB', 'sD'],
    'the session of the damaged record is unknown: all that have no record after it',
  );

  const zeroed = Buffer.from(sound).fill(0, starts[4], starts[5]);
  t.match((await play(zeroed)).findings.faults, [{ kind: 'corrupt', offset: starts[4] }]);
});

t.test('records that are there twice, or covered, count once', async t => {
  const continuity = new SessionContinuity();
  continuity.covers('sA', 2);
  const at = { file: FIRST, offset: 0 };
  const verdict = (n: number) => continuity.verdict({ kind: 'step', sessionId: 'sA', n, body: 'Left' }, at);
  t.same([1, 2, 3, 3, 4, 6, 5].map(verdict), [
    'covered',
    'covered',
    'apply',
    'covered',
    'apply',
    'ignored',
    'ignored',
  ]);
  t.same([...continuity.behind({ faults: [], incomplete: undefined })], ['sA']);
  t.same(continuity.behind({ faults: [], incomplete: 'the machine went down' }).size, 1);
});

t.test('replaying lets others have their turn', async t => {
  const folder = t.testdir();
  const { journal } = openJournal(folder);
  for (let n = 1; n <= 20_000; n++) journal.append('step', 'sA', n, n);
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
  for await (const _ of replayJournal(folder, listSegments(folder), findings)) {
    read++;
    const end = performance.now() + MS_PER_RECORD;
    while (performance.now() < end);
  }
  done = true;
  t.equal(read, 20_000);
  t.ok(turns >= 5, `${turns} turns`);
});

t.test('a segment of another version is named, not guessed at', async t => {
  const folder = t.testdir();
  const { journal } = openJournal(folder);
  journal.append('step', 'sA', 1, 'Left');
  journal.close();
  const buffer = new FrameBuffer();
  buffer.add('h'.charCodeAt(0), '-', 0, { format: 99, boot: '', synced: true });
  buffer.add('s'.charCodeAt(0), 'sA', 2, 'Left');
  writeFileSync(join(folder, '0000000002-first-0.journal'), Buffer.concat([Buffer.of(0), buffer.bytes]));
  const { records, findings } = await replayed(folder);
  t.same(records, ['step sA 1 "Left"']);
  t.match(findings.faults, [{ kind: 'unreadable', reason: /another version/ }]);
});

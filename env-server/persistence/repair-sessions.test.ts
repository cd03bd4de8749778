import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import t, { type Test } from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { server } from '../sessions/storage/restart.test-data.ts';
import { DATABASE_FILE, openDatabase } from './database.ts';
import { describeRepair, repairDatabase, TABLES } from './repair.ts';
import { SessionRows } from './session-rows.ts';

/** Effects of a repair on sessions, with rows and parts in several tables. */

t.setTimeout(900_000);

const COUNTER = { env_id: 'test/Counter-v0', config: { preset: 'long' } };
/** Sessions of one folder, each with parts that fill pages. */
const MANY = 30;
const STEPS = 20;
const INTERIOR_HEADER_BYTES = 12;
const CELL_COUNT_AT = 3;

const SESSION = {
  owner: 'ann',
  version: 2,
  edition: '',
  settings: '{}',
  lost: null,
  standing: 'synced',
} as const;

/** Changes something in the database of a folder. */
function change(folder: string, sql: string, ...values: SQLInputValue[]): void {
  const database = new DatabaseSync(join(folder, DATABASE_FILE));
  const { changes } = database.prepare(sql).run(...values);
  database.close();
  if (changes === 0) throw new Error(`nothing to change: ${sql}`);
}

const spoilDocument = (folder: string, id: string) =>
  change(folder, "UPDATE sessions SET document = '{' WHERE session_id = ?", id);

function tablesOf(database: DatabaseSync): string[] {
  const tables = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").all();
  return tables.map(({ name }) => String(name)).sort();
}

function rowsOf(folder: string): { [table: string]: object[] } {
  const database = new DatabaseSync(join(folder, DATABASE_FILE), { readOnly: true });
  const rows = tablesOf(database).map(table => [table, database.prepare(`SELECT * FROM ${table}`).all()]);
  database.close();
  return Object.fromEntries(rows);
}

t.test('a repair knows every table of the database', async t => {
  const database = openDatabase(undefined, 0);
  t.teardown(() => database.close());
  t.same(TABLES.map(({ table }) => table).sort(), tablesOf(database));
});

t.test('a repair keeps every row that it can read, of every table', async t => {
  const folder = t.testdir();
  const rows = new SessionRows(folder);
  const ends = { actions: 1, snapshot: 1, reply: 1, dropped: 1 };
  const part = { sessionId: 'whole', number: 0, data: '{}' };
  rows.write([
    ['put', { ...SESSION, id: 'whole', document: JSON.stringify({ ends }) }],
    ['put', { ...SESSION, id: 'spoilt', document: JSON.stringify({ ends }) }],
    ['putPart', { ...part, kind: 'actions' }],
    ['putPart', { ...part, kind: 'snapshot' }],
    ['putPart', { ...part, kind: 'reply' }],
    ['putPart', { ...part, kind: 'dropped', data: 'AAAAAAAAAAA=' }],
    ['putPart', { ...part, kind: 'reply', sessionId: 'spoilt' }],
    ['putReply', { owner: 'ann', key: 'k', operation: 'create', asked: '', reply: '{}' }],
    ['putDroppedKeys', { owner: 'ann', hashes: 'AAAAAAAAAAA=', at: 1 }],
    ['putClock', { server: 1.5, wall: 2.5, uptime: 3.5, boot: 'b' }],
    ['end', { id: 'gone', owner: 'ann', ending: 'session_closed', reason: null, forgetAt: 9 }],
  ]);
  rows.close();
  const before = rowsOf(folder);
  spoilDocument(folder, 'spoilt');
  const { tables, lostSessions } = repairDatabase(folder)!;
  const expected = Object.fromEntries(
    Object.entries(before).map(([table, found]) => [
      table,
      found.filter(row => (row as JsonObject).session_id !== 'spoilt'),
    ]),
  );
  t.same(rowsOf(folder), expected);
  for (const { table, kept } of tables) t.equal(kept, expected[table].length, table);
  t.same(lostSessions, []);
});

for (const [table, column] of [
  ['session_parts', 'data'],
  ['dropped_keys', 'hashes'],
] as const) {
  t.test(`hashes of ${table} that are none are damage`, async t => {
    const folder = t.testdir();
    const rows = new SessionRows(folder);
    rows.write([
      ['put', { ...SESSION, id: 's', document: JSON.stringify({ ends: { dropped: 1 } }) }],
      ['putPart', { sessionId: 's', kind: 'dropped', number: 0, data: 'AAAAAAAAAAA=' }],
      ['putDroppedKeys', { owner: 'ann', hashes: 'AAAAAAAAAAA=', at: 1 }],
    ]);
    rows.close();
    t.equal(repairDatabase(folder), undefined);
    change(folder, `UPDATE ${table} SET ${column} = 'AAAA'`);
    const name = table === 'session_parts' ? 's dropped 0' : '1';
    const report = repairDatabase(folder)!;
    t.same(report.lostSessions, table === 'session_parts' ? ['s'] : []);
    t.same(report.damage, [`${table} ${name}: ${column} is not hashes in base64`]);
    t.match(
      report.tables.find(found => found.table === table),
      { kept: 0, lost: [name] },
    );
  });
}

/** A folder in which one session was played and another opened. */
async function played(t: Test) {
  const folder = t.testdir();
  const { ask, server: http } = await server(t, folder);
  const id: string = (await ask('POST', '/v1/sessions', COUNTER)).session_id;
  const other: string = (await ask('POST', '/v1/sessions', COUNTER)).session_id;
  const requests = (asked: typeof ask) => ({
    step: () => asked('POST', `/v1/sessions/${id}/step`, { action: 'add' }, 'k1'),
    snapshot: () => asked('POST', `/v1/sessions/${id}/snapshot`, {}, 'k2'),
    reset: () => asked('POST', `/v1/sessions/${id}/reset`, {}, 'k3'),
  });
  const first = requests(ask);
  const replies = { step: await first.step(), snapshot: await first.snapshot(), reset: await first.reset() };
  await ask('POST', `/v1/sessions/${id}/step`, { action: 'add' });
  await http.close();
  return { folder, id, other, replies, requests };
}

t.test('a damaged session costs other sessions nothing: neither steps nor request keys', async t => {
  const { folder, id, other, replies, requests } = await played(t);
  spoilDocument(folder, other);
  repairDatabase(folder);
  const { ask } = await server(t, folder);
  t.match(await ask('GET', `/v1/sessions/${id}`), { session_id: id, step: 1 });
  const again = requests(ask);
  t.same(await again.step(), replies.step);
  t.same(await again.snapshot(), replies.snapshot);
  t.same(await again.reset(), replies.reset, 'a reset is carried out once');
  t.match(await ask('GET', `/v1/sessions/${id}`), { step: 1 });
  t.match(await ask('GET', `/v1/sessions/${other}`), { code: 'unknown_session' });
});

for (const kind of ['actions', 'snapshot', 'reply'] as const) {
  t.test(`a session that has lost a part of the kind ${kind} does not continue`, async t => {
    const { folder, id, other } = await played(t);
    change(folder, "UPDATE session_parts SET data = '{' WHERE session_id = ? AND kind = ?", id, kind);
    const report = repairDatabase(folder)!;
    t.same(report.lostSessions, [id]);
    t.match(describeRepair(report), `  sessions that cannot continue, as parts of them are lost: ${id}\n`);
    const { ask } = await server(t, folder);
    const found = await ask('GET', `/v1/sessions/${id}`);
    t.match(found, { code: 'session_lost', detail: /parts of it were lost/ });
    t.match(await ask('GET', `/v1/sessions/${other}`), { session_id: other });
  });
}

/** A folder with many sessions, with parts that take many pages. */
async function manyPlayed(t: Test): Promise<{ folder: string; ids: string[] }> {
  const folder = t.testdir();
  const { ask, server: http } = await server(t, folder);
  const ids: string[] = [];
  for (let i = 0; i < MANY; i++) {
    const { session_id } = await ask('POST', '/v1/sessions', COUNTER);
    for (let n = 0; n < STEPS; n++) {
      await ask('POST', `/v1/sessions/${session_id}/step`, { action: 'add' }, `${i} ${n}`);
    }
    ids.push(session_id);
  }
  await http.close();
  return { folder, ids };
}

/** Makes pages of a table or index unreadable, of those that its root points to. */
function spoilPages(folder: string, name: string, from: number, to?: number): void {
  const path = join(folder, DATABASE_FILE);
  const database = new DatabaseSync(path);
  database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  const root = database.prepare('SELECT rootpage FROM sqlite_schema WHERE name = ?').get(name)!.rootpage;
  const pageBytes = Number(database.prepare('PRAGMA page_size').get()!.page_size);
  database.close();
  const bytes = readFileSync(path);
  const at = (Number(root) - 1) * pageBytes;
  const children = Array.from({ length: bytes.readUInt16BE(at + CELL_COUNT_AT) }, (_, cell) => {
    const pointer = bytes.readUInt16BE(at + INTERIOR_HEADER_BYTES + 2 * cell);
    return (bytes.readUInt32BE(at + pointer) - 1) * pageBytes;
  });
  for (const child of children.slice(from, to)) bytes.fill(0xff, child, child + pageBytes);
  writeFileSync(path, bytes);
}

for (const withIndex of [false, true]) {
  const what = withIndex ? 'a page of parts, and their index,' : 'a page of parts';
  t.test(`${what} cannot be read: its sessions are lost by name, others continue`, async t => {
    const { folder, ids } = await manyPlayed(t);
    const before = rowsOf(folder).session_parts.length;
    spoilPages(folder, 'session_parts', 2, 3);
    if (withIndex) spoilPages(folder, 'sqlite_autoindex_session_parts_1', 0);
    const { lostSessions, tables } = repairDatabase(folder)!;
    const parts = tables.find(({ table }) => table === 'session_parts')!;
    t.ok(parts.lost.length > 0 && parts.kept < before, `${parts.lost.length} of ${before} parts are lost`);
    t.ok(
      lostSessions.length > 0 && lostSessions.length < MANY / 2,
      `${lostSessions.length} sessions are lost`,
    );
    const { ask } = await server(t, folder);
    for (const id of ids) {
      const lost = lostSessions.includes(id);
      t.match(await ask('GET', `/v1/sessions/${id}`), lost ? { code: 'session_lost' } : { step: STEPS });
    }
    const at = ids.findIndex(id => !lostSessions.includes(id));
    const step = `/v1/sessions/${ids[at]}/step`;
    t.match(await ask('POST', step, { action: 'add' }, `${at} ${STEPS - 1}`), { step: STEPS });
    t.match(await ask('GET', `/v1/sessions/${ids[at]}`), { step: STEPS }, 'the key is known');
  });
}

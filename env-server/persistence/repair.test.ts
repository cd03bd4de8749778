import {
  closeSync,
  copyFileSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { output, runServer, startServer } from '../../test/process.test-data.ts';
import { DATABASE_FILE, openDatabase } from './database.ts';
import { repairDatabase } from './repair.ts';
import { type SessionRow, SessionRows } from './session-rows.ts';
import { checkDatabase, openStore } from './store.ts';

/** Databases with flipped bytes, missing ends and lost logs. */

t.setTimeout(900_000);

const PAGE_BYTES = 4096;
const SESSIONS = 200;

function sessionRow(number: number): SessionRow {
  return {
    id: `s${number}`,
    owner: 'ann',
    version: 1,
    edition: '',
    settings: null,
    document: JSON.stringify({ text: `${number} `.repeat(300) }),
    lost: null,
    standing: 'atRest',
  };
}

async function fill(folder: string): Promise<string> {
  const store = openStore(folder);
  for (const name of ['One', 'Two']) {
    await store.putEnvironment(
      {
        envId: `me/${name}-v0`,
        kind: 'tabular',
        definition: { title: name },
        facts: {},
        owner: 'ann',
        revision: 1,
        registeredAt: 1,
        replacedAt: null,
      },
      {
        at: 1,
        principal: 'ann',
        action: 'register',
        envId: name,
        kind: 'tabular',
        sha256: '',
        outcome: 'accepted',
      },
    );
  }
  await store.close();
  const rows = new SessionRows(folder);
  rows.write(Array.from({ length: SESSIONS }, (_, i) => ['put', sessionRow(i)] as const));
  rows.close();
  return join(folder, DATABASE_FILE);
}

/** Pages in the middle of the sessions. */
function spoil(path: string, pages = 3): void {
  const bytes = readFileSync(path);
  const at = bytes.indexOf(`{"text":"100 `);
  const first = Math.floor(at / PAGE_BYTES);
  bytes.fill(0xff, first * PAGE_BYTES, (first + pages) * PAGE_BYTES);
  writeFileSync(path, bytes);
}

const ids = (folder: string) => {
  const rows = new SessionRows(folder);
  try {
    return [...rows.sessions()].map(({ id }) => id);
  } finally {
    rows.close();
  }
};

t.test('a database without damage is left alone', async t => {
  const folder = t.testdir();
  t.equal(repairDatabase(folder), undefined, 'nor is one made');
  const path = await fill(folder);
  const before = readFileSync(path);
  t.equal(repairDatabase(folder), undefined);
  t.same(readFileSync(path), before);
});

t.test('flipped bytes: what can be read is kept, what not is counted, the damaged file stays', async t => {
  const folder = t.testdir();
  const path = await fill(folder);
  spoil(path);
  const damaged = readFileSync(path);
  t.throws(() => checkDatabase(folder), {
    name: 'DamagedDatabase',
    message: new RegExp(`${DATABASE_FILE} is damaged \\(.*--repair`, 's'),
  });
  const report = repairDatabase(folder, new Date(0))!;
  t.equal(report.aside, `${path}.damaged-1970-01-01T00-00-00-000Z`);
  t.same(readFileSync(report.aside), damaged);
  const sessions = report.tables.find(({ table }) => table === 'sessions')!;
  t.ok(sessions.lost.length > 0 && sessions.lost.length < 20, `${sessions.lost.length} lost`);
  t.equal(sessions.kept + sessions.lost.length, SESSIONS);
  const kept = ids(folder);
  t.equal(kept.length, sessions.kept);
  t.ok(kept.includes('s0') && kept.includes(`s${SESSIONS - 1}`) && !kept.includes('s100'));
  t.match(report.tables, [{ table: 'environments', kept: 2, lost: [] }]);
  const store = openStore(folder);
  t.teardown(() => store.close());
  t.equal(store.environments().length, 2);
  t.equal(repairDatabase(t.testdir({})), undefined);
});

t.test('a value that is not JSON any more is damage, too', async t => {
  const folder = t.testdir();
  const path = await fill(folder);
  const bytes = readFileSync(path);
  bytes[bytes.indexOf('{"title":"Two"}')] = 0x21;
  writeFileSync(path, bytes);
  const store = openStore(folder);
  t.throws(() => store.environments(), { name: 'DamagedDatabase', message: /me\/Two-v0.*--repair/s });
  store.close();
  t.match(repairDatabase(folder), {
    damage: ['environments me/Two-v0: definition is not JSON'],
    tables: [{ table: 'environments', kept: 1, lost: ['me/Two-v0'] }],
  });
  t.equal(ids(folder).length, SESSIONS);
});

for (const share of [0.5, 0.05, 0]) {
  t.test(`a file cut to ${share} of its length`, async t => {
    const folder = t.testdir();
    const path = await fill(folder);
    truncateSync(path, Math.floor(readFileSync(path).length * share));
    if (share === 0) {
      // An empty file is an empty database.
      t.equal(repairDatabase(folder), undefined);
      await openStore(folder).close();
      return;
    }
    t.throws(() => checkDatabase(folder), { name: 'DamagedDatabase' });
    const report = repairDatabase(folder)!;
    t.ok(existsSync(report.aside));
    t.equal(ids(folder).length, report.tables.find(({ table }) => table === 'sessions')!.kept);
    await openStore(folder).close();
  });
}

t.test('a file cut to no bytes is damage and not a new database, and its log is kept', t => {
  const folder = t.testdir({ 'ragen.db-wal': 'log', journal: { state: '' } });
  const file = join(folder, DATABASE_FILE);
  for (const log of [`${file}-wal`, join(folder, 'journal')]) {
    writeFileSync(file, '');
    t.throws(() => openDatabase(folder, 0), { name: 'DamagedDatabase', message: /0 bytes.*--repair/ });
    const report = repairDatabase(folder)!;
    t.match(report.damage, [/it has 0 bytes, but a log or a journal/]);
    t.equal(existsSync(`${report.aside}-wal`), log.endsWith('-wal'));
    openDatabase(folder, 0).close();
  }
  t.end();
});

t.test('a file that is not a database is set aside and a new database is made', async t => {
  const folder = t.testdir({ [DATABASE_FILE]: 'not a database '.repeat(1000) });
  t.throws(() => checkDatabase(folder), { name: 'DamagedDatabase', message: /not a database/ });
  const report = repairDatabase(folder)!;
  t.ok(report.tables.every(({ kept, cutShort }) => kept === 0 && cutShort !== undefined));
  t.match(readFileSync(report.aside, 'utf8'), /^not a database/);
  await openStore(folder).close();
});

/** A folder as a killed server leaves it: the newest sessions are in the log only. */
async function killed(t: Test): Promise<string> {
  const source = t.testdir({ source: {}, copy: {} });
  await fill(join(source, 'source'));
  const rows = new SessionRows(join(source, 'source'));
  rows.write([['put', sessionRow(SESSIONS)]]);
  rows.write([['put', sessionRow(SESSIONS + 1)]]);
  for (const name of readdirSync(join(source, 'source'))) {
    if (!name.endsWith('-shm')) copyFileSync(join(source, 'source', name), join(source, 'copy', name));
  }
  rows.close();
  return join(source, 'copy');
}

t.test('repair keeps the write-ahead log of a damaged database', async t => {
  const folder = await killed(t);
  const path = join(folder, DATABASE_FILE);
  spoil(path);
  const report = repairDatabase(folder)!;
  t.ok(existsSync(`${report.aside}-wal`), 'the log goes aside with it');
  t.notOk(existsSync(`${path}-wal`));
  const kept = ids(folder);
  t.ok(kept.includes(`s${SESSIONS}`) && kept.includes(`s${SESSIONS + 1}`));
});

for (const [how, damage] of [
  ['cut', (wal: string) => truncateSync(wal, readFileSync(wal).length - PAGE_BYTES)],
  ['flipped', (wal: string) => patch(wal, readFileSync(wal).length - 100)],
] as const) {
  t.test(`a log that was ${how}: the last transaction is gone, the rest is whole`, async t => {
    const folder = await killed(t);
    damage(join(folder, `${DATABASE_FILE}-wal`));
    await openStore(folder).close();
    const kept = ids(folder);
    t.equal(kept.at(-1), `s${SESSIONS}`);
    t.equal(kept.length, SESSIONS + 1);
  });
}

function patch(path: string, offset: number): void {
  const file = openSync(path, 'r+');
  writeSync(file, Buffer.of(readFileSync(path)[offset] ^ 0xff), 0, 1, offset);
  closeSync(file);
}

t.test('the program names the file and the remedy; --repair mends it and serves', async t => {
  const data = t.testdir();
  spoil(await fill(data));
  const refused = await output(runServer(t, ['--port', '0', '--data', data]));
  t.equal(refused.code, 1);
  t.match(refused.text, `${join(data, DATABASE_FILE)} is damaged (`);
  t.match(refused.text, /start the server once with --repair/);
  const { lines, ask } = await startServer(t, ['--data', data, '--repair']);
  const text = lines.join('\n');
  t.match(text, /environments: 2 rows kept\n/);
  t.match(text, /sessions: 1\d\d rows kept, \d+ lost: /);
  t.match(text, /the damaged one is kept as .*ragen\.db\.damaged-/);
  t.equal((await ask('GET', '/readyz')).status, 200);
  t.match(await output(runServer(t, ['--repair'])), { code: 1, text: /--repair needs --data/ });
});

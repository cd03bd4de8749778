import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { output, runServer, startServer } from '../../test/process.test-data.ts';
import { lacksValkey } from '../store/valkey.test-data.ts';
import { DATABASE_FILE } from './database.ts';
import { lockFolder } from './lock.ts';
import { smallDisk } from './small-disk.test-data.ts';
import { openStore } from './store.ts';

t.setTimeout(900_000);

t.test('a second server on one folder is refused, with the process that has it', async t => {
  const data = t.testdir();
  const first = await startServer(t, ['--data', data]);
  for (const flags of lacksValkey ? [[]] : [[], ['--replicas', '2']]) {
    const second = runServer(t, ['--port', '0', '--data', data, ...flags]);
    const { code, text } = await output(second);
    t.equal(code, 1);
    t.match(text, `${data} is in use by another server (process ${first.child.pid} on `);
    t.match(text, /Stop that one, or give this one another folder with --data/);
  }
  t.equal((await first.ask('GET', '/livez')).status, 200);
  t.same(await first.end('SIGTERM'), { code: 0, signal: null });
  t.notOk(existsSync(join(data, 'server.json')));
});

t.test('a data folder that cannot be written to is named, with the remedy', async t => {
  const disk = smallDisk(t, 1024 * 1024);
  if (disk === undefined || spawnSync('mount', ['-o', 'remount,ro', disk]).status !== 0) {
    t.comment('skipped: a tmpfs cannot be mounted read-only here');
    return;
  }
  for (const folder of [disk, join(disk, 'new')]) {
    t.throws(() => lockFolder(folder), {
      message: new RegExp(
        `^the data folder ${folder} cannot be written to \\(.*; make it writable .* --data$`,
      ),
    });
  }
});

t.test(
  'a data folder where none can be made is named, too',
  { skip: !existsSync('/proc/self') && 'no /proc here' },
  async t => {
    const { code, text } = await output(runServer(t, ['--port', '0', '--data', '/proc/ragen/data']));
    t.equal(code, 1);
    t.match(
      text,
      'the data folder /proc/ragen/data cannot be written to (cannot make the folder /proc/ragen:',
    );
  },
);

t.test('a server that was killed leaves no lock behind', async t => {
  const folder = t.testdir();
  const program = `
    import { lockFolder } from ${JSON.stringify(new URL('./lock.ts', import.meta.url).href)};
    lockFolder(${JSON.stringify(folder)});
    console.log('locked');
    setInterval(() => {}, 1000);
  `;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program]);
  t.teardown(() => child.kill('SIGKILL'));
  await once(child.stdout, 'data');
  t.throws(() => lockFolder(folder), { name: 'FolderInUse', message: new RegExp(`process ${child.pid} on`) });
  const exit = once(child, 'exit');
  child.kill('SIGKILL');
  await exit;
  lockFolder(folder).release();
});

t.test(
  'stored files are readable by the server’s user alone',
  { skip: process.platform === 'win32' },
  async t => {
    const umask = process.umask(0);
    t.teardown(() => process.umask(umask));
    const parent = t.testdir();
    const made = join(parent, 'made');
    const store = openStore(made);
    t.teardown(() => store.close());
    const lock = lockFolder(made);
    t.teardown(() => lock.release());
    t.equal(statSync(made).mode & 0o777, 0o700);
    const modes = (folder: string) =>
      Object.fromEntries(
        readdirSync(folder).map(name => [name, (statSync(join(folder, name)).mode & 0o777).toString(8)]),
      );
    const files = modes(made);
    t.match(files, { 'ragen.db': '600', 'ragen.db-wal': '600', 'ragen.db-shm': '600', 'server.json': '600' });
    t.same(new Set(Object.values(files)), new Set(['600']));

    const old = join(parent, 'old');
    mkdirSync(old, { mode: 0o755 });
    for (const name of [DATABASE_FILE, 'sessions.lock']) writeFileSync(join(old, name), '', { mode: 0o644 });
    chmodSync(old, 0o755);
    const again = openStore(old);
    t.teardown(() => again.close());
    lockFolder(old).release();
    t.same(new Set(Object.values(modes(old))), new Set(['600']), 'existing files are tightened');
    t.equal(statSync(old).mode & 0o777, 0o755, 'a folder that was there belongs to its owner');
  },
);

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { cp, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { Checkpoints, type NewCheckpoint } from './checkpoints.ts';

const MODEL = `${randomUUID()}:train:0`;
const OTHER_MODEL = `${randomUUID()}:train:1`;
const folderOf = (root: string, model: string, name: string) =>
  join(root, model.replace(':train:', '-train-'), 'weights', name);

/** A key has room for two checkpoints, and all keys for three. */
const MEBIBYTES = (4 * 1900) / 3 / 2 ** 19;

/** Saves 1,500 bytes, and some facts. */
const saved = (checkpoints: Checkpoints, name: string, more: Partial<NewCheckpoint> = {}, model = MODEL) =>
  checkpoints.save(
    model,
    {
      kind: 'weights',
      name,
      base_model: 'base',
      owner: 'mine',
      ...more,
    },
    folder => writeFile(join(folder, 'adapter'), Buffer.alloc(1500)),
  );

t.test('checkpoints have a limit in bytes, of which one key leaves a quarter to the others', async t => {
  const root = t.testdir();
  const checkpoints = new Checkpoints(root, MEBIBYTES);
  await saved(checkpoints, 'one');
  await saved(checkpoints, 'two', {}, OTHER_MODEL);
  await t.rejects(saved(checkpoints, 'three'), {
    status: 400,
    message:
      /the checkpoints of this key would have 6 files with 1 MiB, and the most are 3750 files and 0\.0036/,
  });
  t.notOk(existsSync(folderOf(root, MODEL, 'three')), 'nothing is left of it');
  await saved(checkpoints, 'theirs', { owner: 'theirs' });
  await t.rejects(saved(checkpoints, 'more', { owner: 'third' }), {
    status: 400,
    message:
      /the folder of checkpoints would have 8 files .* 5000 files and 0\.0048\d+ MiB \(--max-checkpoint-mb\)/,
  });
  await saved(checkpoints, 'one', { overwrite: true });
  await rm(folderOf(root, OTHER_MODEL, 'two'), { recursive: true });
  await saved(checkpoints, 'four');
});

t.test('expired checkpoints of any model make room', async t => {
  const root = t.testdir();
  const checkpoints = new Checkpoints(root, MEBIBYTES);
  await saved(checkpoints, 'one', { ttlSeconds: 0.001 });
  await saved(checkpoints, 'two', { ttlSeconds: 0.001, owner: 'theirs' });
  await pause(10);
  await saved(checkpoints, 'three', {}, OTHER_MODEL);
  t.notOk(existsSync(folderOf(root, MODEL, 'one')));
  t.notOk(existsSync(folderOf(root, MODEL, 'two')), 'also those of other keys');
});

t.test('of checkpoints that are saved at once only those that fit are kept', async t => {
  const root = t.testdir();
  const checkpoints = new Checkpoints(root, MEBIBYTES);
  const names = ['one', 'two', 'three', 'four', 'five'];
  const saves = await Promise.allSettled(names.map(name => saved(checkpoints, name)));
  t.equal(saves.filter(({ status }) => status === 'fulfilled').length, 2);
  t.equal((await readdir(join(folderOf(root, MODEL, 'one'), '..'))).length, 2);
});

t.test('many small files have a limit too', async t => {
  const root = t.testdir();
  const many = join(root, 'many');
  await mkdir(many);
  for (let i = 0; i < 5_000; i += 500)
    await Promise.all(Array.from({ length: 500 }, (_, n) => writeFile(join(many, `${i + n}`), '')));
  await t.rejects(saved(new Checkpoints(root, 1), 'one'), { status: 400, message: /have 5002 files/ });
});

t.test('folders of others with a file of that name are not removed, and nothing else is left', async t => {
  const files = [
    '{}',
    'null',
    '[]',
    '{"format":1,"path":"tinker://a/weights/b"}',
    '{"owner":"mine","expires":"soon"}',
  ];
  const folders = Object.fromEntries(files.map((text, i) => [`n${i}`, { 'tinker.json': text }]));
  const root = t.testdir({ notes: { weights: folders } });
  await saved(new Checkpoints(root, MEBIBYTES), 'one');
  t.same(await readdir(join(root, 'notes/weights')), Object.keys(folders));
  t.same((await readdir(root)).sort(), [MODEL.replace(':train:', '-train-'), 'notes'].sort());
});

t.test('a kill while a checkpoint is replaced leaves the old one or the new one, whole', async t => {
  const root = t.testdir();
  const program = fileURLToPath(new URL('saving.test-data.ts', import.meta.url));
  for (let round = 0; round < 8; round++) {
    const child = spawn(process.execPath, [program, root, MODEL, 'one'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.teardown(() => child.kill('SIGKILL'));
    await once(child.stdout, 'data');
    await pause(10 * Math.random() * round);
    child.kill('SIGKILL');
    await once(child, 'exit');
    const checkpoints = new Checkpoints(root, 64);
    await saved(checkpoints, 'other', { overwrite: true });
    const { folder } = await checkpoints.find(`tinker://${MODEL}/weights/one`, 'mine');
    t.equal((await readdir(folder)).length, 202);
    const all = await readdir(root, { recursive: true });
    t.same(
      all.filter(path => basename(path).startsWith('.')),
      [],
    );
  }
});

t.test('what a killed server moved aside is put back, unless there is a newer one', async t => {
  const root = t.testdir();
  const checkpoints = new Checkpoints(root, 64);
  for (const name of ['lost', 'newer']) await saved(checkpoints, name);
  const aside = (name: string) =>
    join(root, MODEL.replace(':train:', '-train-'), 'weights', `.4194305.7.${randomUUID()}.${name}`);
  await rename(folderOf(root, MODEL, 'lost'), aside('lost'));
  await cp(folderOf(root, MODEL, 'newer'), aside('newer'), { recursive: true });
  await saved(new Checkpoints(root, 64), 'next');
  t.same((await readdir(join(folderOf(root, MODEL, 'next'), '..'))).sort(), ['lost', 'newer', 'next']);
});

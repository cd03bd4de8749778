import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import t from 'tap';
import { Checkpoints, type NewCheckpoint } from './checkpoints.ts';

const MODEL = `${randomUUID()}:train:0`;
const OTHER_MODEL = `${randomUUID()}:train:1`;
const folderOf = (root: string, model: string, name: string) =>
  join(root, model.replace(':train:', '-train-'), 'weights', name);

/** Saves 1,500 bytes, and some facts. */
const saved = (checkpoints: Checkpoints, name: string, more: Partial<NewCheckpoint> = {}, model = MODEL) =>
  checkpoints.save(
    model,
    {
      kind: 'weights',
      name,
      base_model: 'base',
      owner: 'mine',
      share: `key ${more.owner ?? 'mine'}`,
      ...more,
    },
    folder => writeFile(join(folder, 'adapter'), Buffer.alloc(1500)),
  );

t.test('the checkpoints of a key have a limit in bytes, which others do not feel', async t => {
  const root = t.testdir();
  const checkpoints = new Checkpoints(root, 4096, () => false);
  await saved(checkpoints, 'one');
  await saved(checkpoints, 'two', {}, OTHER_MODEL);
  await t.rejects(saved(checkpoints, 'three'), {
    status: 400,
    message: /would take 1 of 0\.00390625 MiB \(--max-checkpoint-mb\): delete some/,
  });
  t.notOk(existsSync(folderOf(root, MODEL, 'three')), 'nothing is left of it');
  await saved(checkpoints, 'one', { overwrite: true });
  await saved(checkpoints, 'three', { owner: 'theirs' });
  await rm(folderOf(root, OTHER_MODEL, 'two'), { recursive: true });
  await saved(checkpoints, 'four');
});

t.test('expired checkpoints of any model make room', async t => {
  const root = t.testdir();
  const checkpoints = new Checkpoints(root, 4096, () => false);
  await saved(checkpoints, 'one', { ttlSeconds: 0.001 });
  await saved(checkpoints, 'two', { ttlSeconds: 0.001, owner: 'theirs' });
  await pause(10);
  await saved(checkpoints, 'three', {}, OTHER_MODEL);
  t.notOk(existsSync(folderOf(root, MODEL, 'one')));
  t.notOk(existsSync(folderOf(root, MODEL, 'two')), 'also those of other keys');
});

t.test(
  'a key’s share of the disk is read once at the start, and saves read nothing of other keys',
  async t => {
    const root = t.testdir();
    const before = new Checkpoints(root, 4096, () => false);
    await saved(before, 'one');
    await saved(before, 'two', {}, OTHER_MODEL);
    await saved(before, 'theirs', { owner: 'theirs' });
    const checkpoints = new Checkpoints(root, 4096, () => false);
    await t.rejects(
      saved(checkpoints, 'three'),
      { message: /would take 1 of/ },
      'those of the server before count',
    );
    await rm(folderOf(root, MODEL, 'one'), { recursive: true });
    await saved(checkpoints, 'three');
    const file = join(folderOf(root, MODEL, 'theirs'), 'tinker.json');
    const info = JSON.parse(await readFile(file, 'utf8'));
    await writeFile(file, JSON.stringify({ ...info, expires: 1 }));
    await saved(checkpoints, 'three', { overwrite: true });
    t.ok(existsSync(file), 'the file of another key was not opened');
    await saved(new Checkpoints(root, 4096, () => false), 'three', { overwrite: true });
    t.notOk(existsSync(file), 'and is read by the next server');
  },
);

t.test('of checkpoints that are saved at once only those that fit are kept', async t => {
  const root = t.testdir();
  const checkpoints = new Checkpoints(root, 4096, () => false);
  const names = ['one', 'two', 'three', 'four', 'five'];
  const saves = await Promise.allSettled(names.map(name => saved(checkpoints, name)));
  t.equal(saves.filter(({ status }) => status === 'fulfilled').length, 2);
  t.equal((await readdir(join(folderOf(root, MODEL, 'one'), '..'))).length, 2);
});

t.test('made-up keys of one address share its room', async t => {
  const root = t.testdir();
  const checkpoints = new Checkpoints(root, 4096, () => false);
  const hostile = (n: number) =>
    saved(checkpoints, `h${n}`, { owner: `made up ${n}`, share: 'address 127.0.0.1' });
  await hostile(0);
  await hostile(1);
  await t.rejects(hostile(2), { status: 400, message: /the checkpoints of this address would take/ });
  await saved(checkpoints, 'mine', { share: 'address 127.0.0.2' });
});

t.test('folders of others with a file of that name are neither counted nor removed', async t => {
  const files = [
    '{}',
    'null',
    '[]',
    '{"format":1,"path":"tinker://a/weights/b"}',
    '{"owner":"mine","expires":"soon"}',
  ];
  const folders = Object.fromEntries(files.map((text, i) => [`n${i}`, { 'tinker.json': text }]));
  const root = t.testdir({ notes: { weights: folders } });
  await saved(new Checkpoints(root, 4096, () => false), 'one');
  t.same(await readdir(join(root, 'notes/weights')), Object.keys(folders));
});

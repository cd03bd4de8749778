import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
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
  checkpoints.save(model, { kind: 'weights', name, base_model: 'base', owner: 'mine', ...more }, folder =>
    writeFile(join(folder, 'adapter'), Buffer.alloc(1500)),
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

import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { checkReplaceable, replaceFile, replaceFileSync } from './replace-file.ts';

t.test('writers of one file at the same time do not meet, and a reader sees one of them whole', async t => {
  const folder = t.testdir({ file: 'old' });
  const file = join(folder, 'file');
  const texts = Array.from({ length: 8 }, (_, i) => String(i).repeat(100_000));
  let begun = 0;
  const gate = Promise.withResolvers<void>();
  await Promise.all(
    texts.map(text =>
      replaceFile(file, async temporary => {
        await writeFile(temporary, text, { flag: 'wx' });
        if (++begun === texts.length) {
          t.equal(readFileSync(file, 'utf8'), 'old', 'nobody has replaced it while all are writing');
          gate.resolve();
        }
        await gate.promise;
      }),
    ),
  );
  t.ok(texts.includes(readFileSync(file, 'utf8')));
  t.same(readdirSync(folder), ['file'], 'no temporary file is left');
});

t.test('a writer that fails leaves the old file and nothing else', async t => {
  const folder = t.testdir({ file: 'old' });
  const failing = replaceFile(join(folder, 'file'), async temporary => {
    await writeFile(temporary, 'half');
    throw new Error('the disk is full');
  });
  await t.rejects(failing, { message: 'the disk is full' });
  mkdirSync(join(folder, 'taken'));
  await t.rejects(
    replaceFile(join(folder, 'taken'), temporary => writeFile(temporary, 'a file cannot replace a folder')),
    { code: 'EISDIR' },
  );
  t.same(readdirSync(folder).sort(), ['file', 'taken']);
  t.equal(readFileSync(join(folder, 'file'), 'utf8'), 'old');
});

t.test(
  'a text replaces a file, also at once, and a failure leaves the old file and nothing else',
  async t => {
    const folder = t.testdir({ file: 'old', taken: {} });
    const [file, taken] = [join(folder, 'file'), join(folder, 'taken')];
    await replaceFile(file, 'new');
    t.equal(readFileSync(file, 'utf8'), 'new');
    replaceFileSync(file, 'newer');
    t.equal(readFileSync(file, 'utf8'), 'newer');
    checkReplaceable(file);
    t.equal(readFileSync(file, 'utf8'), 'newer', 'a check changes nothing');
    t.throws(() => replaceFileSync(taken, 'a file cannot replace a folder'), { code: 'EISDIR' });
    t.same(readdirSync(folder).sort(), ['file', 'taken']);
  },
);

t.test('an error names the file, not the temporary one', async t => {
  const file = join(t.testdir(), 'none', 'file');
  const open = { code: 'ENOENT', path: file, message: `ENOENT: no such file or directory, open '${file}'` };
  t.throws(() => replaceFileSync(file, ''), open);
  await t.rejects(replaceFile(file, ''), open);
  t.throws(() => checkReplaceable(file), open);
  if (!existsSync('/dev/full')) return;
  const full = async () => writeFileSync('/dev/full', 'text');
  await t.rejects(replaceFile(file, full), {
    code: 'ENOSPC',
    message: `ENOSPC: no space left on device, write '${file}'`,
  });
});

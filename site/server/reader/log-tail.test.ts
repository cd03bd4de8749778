import { appendFileSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { LogTail } from './log-tail.ts';
import { RunReader } from './run-reader.ts';

const STAMP = '2026-01-01T00:00:00.000Z';

async function tailOf(t: Test, content?: string): Promise<{ readonly file: string; readonly tail: LogTail }> {
  const files = { 'config.yaml': 'seed: 1\n', ...(content === undefined ? {} : { 'log.txt': content }) };
  const root = t.testdir({ run: files });
  const run = (await new RunReader(root).find('run'))!;
  return { file: join(root, 'run/log.txt'), tail: new LogTail(run) };
}

t.test('new lines come once, when they are whole', async t => {
  const { file, tail } = await tailOf(t);
  t.equal(await tail.refresh(), undefined, 'no log yet');
  writeFileSync(file, `${STAMP} first\nno time\n${STAMP} ha`);
  const first = { at: 0, time: STAMP, text: 'first' };
  t.same(await tail.refresh(), { whole: true, lines: [first, { at: 31, time: '', text: 'no time' }] });
  t.equal(await tail.refresh(), undefined);
  appendFileSync(file, 'lf\n');
  t.same(await tail.refresh(), { whole: false, lines: [{ at: 39, time: STAMP, text: 'half' }] });
  t.equal(tail.lines.length, 3);
  writeFileSync(`${file}.new`, `${STAMP} newer\n`);
  renameSync(`${file}.new`, file);
  t.match(await tail.refresh(), { whole: true, lines: [{ text: 'newer' }] }, 'the older half is gone');
  rmSync(file);
  t.equal(await tail.refresh(), undefined);
  t.equal(tail.lines.length, 1, 'what was read stays');
});

t.test('the last 200 lines of a large file, each of bounded length', async t => {
  const line = (i: number) => `${STAMP} ${i} ${'ü'.repeat(5000)}\n`;
  const { file, tail } = await tailOf(t, Array.from({ length: 400 }, (_, i) => line(i)).join(''));
  const { lines } = (await tail.refresh())!;
  t.ok(lines.length > 20 && lines.length < 30, `${lines.length} lines: a quarter of a mebibyte is read`);
  t.match(lines[0].text, /^\d+ ü/, 'no half line');
  t.match(lines.at(-1)!.text, /^399 ü{996}… \(4004 characters more\)$/);
  appendFileSync(file, `${STAMP} short\n`.repeat(500));
  t.equal((await tail.refresh())!.lines.length, 200);
  t.equal(tail.lines.length, 200);
  appendFileSync(file, `${'x'.repeat(100_000)}\n`);
  t.match((await tail.refresh())!.lines, [{ time: '', text: '(a line of 100001 bytes)' }]);
  appendFileSync(file, 'x'.repeat(2 ** 20));
  t.match(await tail.refresh(), { lines: [] }, 'a line that never ends');
});

t.test('hostile lines lose what steers a page or terminal, and passwords', async t => {
  const { file, tail } = await tailOf(t, `${STAMP} \x1b[2J\u202e\u0000 <b> http://me:secret@host/x\r\n`);
  t.equal((await tail.refresh())!.lines[0].text, '\\u001b[2J\\u202e\\u0000 <b> http://***@host/x\\u000d');
  rmSync(file);
  writeFileSync(`${file}.other`, 'other\n');
  symlinkSync(`${file}.other`, file);
  t.equal(await tail.refresh(), undefined, 'a link is not followed');
  rmSync(file);
  mkdirSync(file);
  t.equal(await tail.refresh(), undefined);
});

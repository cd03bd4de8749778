import { execFileSync } from 'node:child_process';
import { appendFileSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { appendJsonLine, readJsonLines, reopenJsonLines, writeJsonLines } from './jsonlines.ts';

t.test('values read back; typed arrays become lists and odd numbers words', async t => {
  const file = join(t.testdir(), 'metrics.jsonl');
  t.same(readJsonLines(file), []);
  appendJsonLine(file, { step: 1, loss: Number.NaN });
  appendJsonLine(file, { ids: Int32Array.of(1, 2), top: Number.POSITIVE_INFINITY });
  t.same(readJsonLines(file), [
    { step: 1, loss: 'NaN' },
    { ids: [1, 2], top: 'Infinity' },
  ]);
  writeJsonLines(file, [{ step: 2 }]);
  t.same(readJsonLines(file), [{ step: 2 }]);
});

t.test('a line cut off at the end is left out, a broken one in the middle is an error', async t => {
  const file = join(t.testdir(), 'metrics.jsonl');
  appendFileSync(file, '{"step":1}\n{"st');
  t.same(readJsonLines(file), [{ step: 1 }]);
  appendFileSync(file, '\n{"step":3}\n');
  t.throws(() => readJsonLines(file), /metrics\.jsonl:2 is not JSON/);
});

t.test('a file that is appended to again loses a line cut off at its end, wherever it was cut', async t => {
  const file = join(t.testdir(), 'tokens.jsonl');
  t.same(reopenJsonLines(file), []);
  const whole = Buffer.from('[1,"a"]\n[2,"é"]\n');
  for (let length = 0; length <= whole.length; length++) {
    writeFileSync(file, whole.subarray(0, length));
    const values = reopenJsonLines(file);
    t.equal(values.length, length < 8 ? 0 : length < whole.length ? 1 : 2);
    appendJsonLine(file, [3, 'c']);
    t.same(reopenJsonLines(file), [...values, [3, 'c']], `cut to ${length} bytes`);
  }
  const before = readFileSync(file);
  reopenJsonLines(file);
  t.same(readFileSync(file), before, 'a whole file stays as it is');
});

t.test('a pipe or a device is refused: reading it may never end', async t => {
  const folder = t.testdir();
  execFileSync('mkfifo', [join(folder, 'pipe.jsonl')]);
  symlinkSync('/dev/zero', join(folder, 'zero.jsonl'));
  for (const name of ['pipe.jsonl', 'zero.jsonl']) {
    t.throws(() => readJsonLines(join(folder, name)), /jsonl is not a regular file/);
    t.throws(() => reopenJsonLines(join(folder, name)), /jsonl is not a regular file/);
  }
});

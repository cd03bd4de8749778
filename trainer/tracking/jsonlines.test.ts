import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { appendJsonLine, readJsonLines, writeJsonLines } from './jsonlines.ts';

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

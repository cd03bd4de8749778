import { appendFileSync, existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { readJsonLines } from './jsonlines.ts';
import { crc32c, openTracker } from './tracker.ts';

const filesIn = (folder: string, name: string) => ({
  metrics: join(folder, `${name}.jsonl`),
  tables: join(folder, `${name}-tables.jsonl`),
});

t.test('the checksum is CRC-32C of RFC 3720', async t => {
  t.equal(crc32c(Buffer.from('123456789')), 0xe3069283);
  t.equal(crc32c(new Uint8Array(32)), 0x8a9136aa);
});

t.test('a run that resumes drops the rows its checkpoint does not know', async t => {
  const folder = t.testdir();
  const files = filesIn(folder, 'metrics');
  const file = files.metrics;
  const first = openTracker(files, { step: -1, validation: -1 }, undefined);
  for (const step of [1, 2, 3]) first.write(step, { loss: step });
  first.write(2, { 'val-env/success': 0.5 });
  const second = openTracker(files, { step: 2, validation: 0 }, undefined);
  second.write(3, { loss: 30 });
  t.match(readJsonLines(file), [
    { step: 1, loss: 1 },
    { step: 2, loss: 2 },
    { step: 3, loss: 30 },
  ]);
  t.equal(readJsonLines(file).length, 3);
});

const none = { step: -1, validation: -1 };

t.test('TensorBoard events are written only where asked', async t => {
  const folder = t.testdir();
  openTracker(filesIn(folder, 'a'), none, undefined).write(1, { loss: 1 });
  t.notOk(existsSync(join(folder, 'board')));
  openTracker(filesIn(folder, 'b'), none, join(folder, 'board')).write(1, { loss: 1 });
  t.match(readdirSync(join(folder, 'board'))[0], /tfevents/);
});

t.test('tables of steps and validations that a resumed run does not know are dropped', async t => {
  const files = filesIn(t.testdir(), 'metrics');
  const table = { columns: ['group', 'std'], rows: [[1, 0.5]] };
  const first = openTracker(files, none, undefined);
  for (const [step, name] of [
    [1, 'grad_norm/all/group_rv_table'],
    [2, 'grad_norm/all/group_rv_table'],
    [1, 'val/generations'],
  ] as const) {
    first.writeTable(step, name, table);
  }
  openTracker(files, { step: 1, validation: 0 }, undefined);
  t.same(readJsonLines(files.tables), [{ step: 1, name: 'grad_norm/all/group_rv_table', ...table }]);
});

t.test('a run resumes again and again after a full disk cut the last line of its files', async t => {
  for (const written of ['', '{"step":1,"name":"val/generations","columns":[],"rows":[]}\n']) {
    const files = filesIn(t.testdir(), 'metrics');
    appendFileSync(files.metrics, '{"step":1,"los');
    appendFileSync(files.tables, `${written}{"step":2,"name":"val/gen`);
    const done = { step: 2, validation: 2 };
    const first = openTracker(files, done, undefined);
    first.write(2, { loss: 1 });
    first.writeTable(2, 'val/generations', { columns: [], rows: [] });
    openTracker(files, done, undefined);
    t.match(readJsonLines(files.metrics), [{ step: 2, loss: 1 }]);
    t.equal(readJsonLines(files.tables).length, written === '' ? 1 : 2);
  }
});

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { parquetWriteFile } from 'hyparquet-writer';
import t from 'tap';
import type { JsonObject } from '../../../../shared/json.ts';
import {
  DATA_FOLDER_VARIABLE,
  NO_DATA,
  numberField,
  numbersField,
  readRecords,
  textField,
} from './records.ts';

const puzzle = (record: JsonObject) => ({
  nums: numbersField(record, 'nums'),
  target: numberField(record, 'target'),
});
const WANTED = [
  { nums: [3, 5, 2], target: 4 },
  { nums: [7, 1, 9, 4], target: 13 },
];

t.test('JSON Lines, a JSON array and Parquet hold the same records', async t => {
  const folder = t.testdir({
    'a.jsonl': `${WANTED.map(row => JSON.stringify(row)).join('\n')}\n\n`,
    'a.json': JSON.stringify(WANTED),
  });
  parquetWriteFile({
    filename: join(folder, 'a.parquet'),
    columnData: [
      { name: 'target', data: WANTED.map(row => BigInt(row.target)), type: 'INT64' },
      { name: 'nums', data: WANTED.map(row => row.nums), type: 'JSON' },
    ],
    rowGroupSize: 1,
  });
  for (const name of ['a.jsonl', 'a.json', 'a.parquet']) {
    t.same(await readRecords('/data', join(folder, name), puzzle), WANTED, name);
  }
});

t.test('text keeps its odd line ends, and Parquet may be packed in any usual way', async t => {
  const folder = t.testdir({ 'a.jsonl': '\uFEFF{"q":"one\u2028two"}\r\n\r\n{"q":"three"}' });
  const q = ['one\u2028two', 'three'];
  const read = (record: JsonObject) => textField(record, 'q');
  t.same(await readRecords('/data', join(folder, 'a.jsonl'), read), q);
  const packings = { ZSTD: zstdCompressSync, GZIP: gzipSync, BROTLI: brotliCompressSync };
  for (const [codec, pack] of Object.entries(packings)) {
    const filename = join(folder, `${codec}.parquet`);
    parquetWriteFile({
      filename,
      columnData: [{ name: 'q', data: q, type: 'STRING' }],
      codec: codec as keyof typeof packings,
      compressors: { [codec]: (bytes: Uint8Array) => new Uint8Array(pack(bytes)) },
    });
    t.same(await readRecords('/data', filename, read), q, codec);
  }
});

t.test('an empty column of Parquet is a field that is not there', async t => {
  const path = join(t.testdir(), 'a.parquet');
  parquetWriteFile({
    filename: path,
    columnData: [
      { name: 'q', data: ['one', null], type: 'STRING' },
      { name: 'list', data: [null, [1, null]], type: 'JSON' },
    ],
  });
  const read = (record: JsonObject) => record;
  t.same(await readRecords('/data', path, read), [{ q: 'one' }, { list: [1, null] }]);
  await t.rejects(
    readRecords('/data', path, (record: JsonObject) => textField(record, 'q')),
    { message: /row 2: field q: expected text, got nothing/ },
  );
});

t.test('a wrong file is refused with row and field', async t => {
  const refused = async (name: string, content: string, message: RegExp) => {
    const path = join(t.testdir({ [name]: content }), name);
    await t.rejects(readRecords('/data', path, puzzle), { name: 'InvalidConfig', pointer: '/data', message });
  };
  await refused('a.jsonl', '{"nums":[1],"target":1}\n{"nums":[1]}', /row 2: field target: .* got nothing/);
  await refused('a.jsonl', '{"nums":[1,"2"],"target":1}', /row 1: field nums\[1\]: .* got a string/);
  await refused('a.jsonl', '{"nums":[1],"target":1}\n{', /row 2: the record is not JSON/);
  await refused('a.json', '{"nums":[1]}', /not an array/);
  await refused('a.json', '[1]', /row 1: the record is not an object/);
  await refused('a.json', '[{"nums":[1],"target":1},]', /row 2: the record is not JSON/);
  await refused('a.json', '[{"nums":[1],"target":1},', /row 2: the file ends early/);
  await refused('a.json', '', /row 1: the file is not an array or object of JSON/);
  await refused('a.jsonl', '', /no usable record/);
  await refused('a.parquet', 'PAR1 or not', /not readable Parquet/);
  await refused('a.csv', '1,2', /must end in .jsonl/);
  await t.rejects(readRecords('/data', '/nowhere/x.jsonl', puzzle), /there is no data file/);
  const folder = join(t.testdir({ 'a.jsonl': {} }), 'a.jsonl');
  await t.rejects(readRecords('/data', folder, puzzle), /there is no data file/);
});

t.test('a file is read once, and again when it changes', async t => {
  const path = join(t.testdir({ 'a.jsonl': '{"q":"one"}' }), 'a.jsonl');
  let reads = 0;
  const read = (record: JsonObject) => {
    reads++;
    return textField(record, 'q');
  };
  t.equal(await readRecords('/data', path, read), await readRecords('/data', path, read));
  t.equal(reads, 1);
  writeFileSync(path, '{"q":"one"}\n{"q":"three"}');
  t.same(await readRecords('/data', path, read), ['one', 'three']);
});

t.test('the data folder confines paths', async t => {
  const folder = t.testdir({ in: { 'a.jsonl': '{"q":"x"}' }, 'b.jsonl': '{"q":"y"}' });
  process.env[DATA_FOLDER_VARIABLE] = join(folder, 'in');
  t.teardown(() => delete process.env[DATA_FOLDER_VARIABLE]);
  const read = (record: JsonObject) => textField(record, 'q');
  t.same(await readRecords('/data', 'a.jsonl', read), ['x']);
  await t.rejects(readRecords('/data', '../b.jsonl', read), /must lie under the folder/);
  await t.rejects(readRecords('/data', join(folder, 'b.jsonl'), read), /must lie under the folder/);
  process.env[DATA_FOLDER_VARIABLE] = NO_DATA;
  await t.rejects(readRecords('/data', 'a.jsonl', read), /reads no data files/);
});

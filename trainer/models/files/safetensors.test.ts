import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { SafetensorsReader, writeSafetensors, writeShardedSafetensors } from './safetensors.ts';

const folder = await mkdtemp(join(tmpdir(), 'ragen-safetensors-'));
t.after(() => rm(folder, { recursive: true }));

/** A file with the given header and data. */
async function handWritten(name: string, header: unknown, data: Uint8Array): Promise<string> {
  const text = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(BigInt(text.length));
  const path = join(folder, name);
  await writeFile(path, Buffer.concat([prefix, text, data]));
  return path;
}

t.test('float32 comes back bit for bit and nothing temporary stays', async t => {
  const path = join(folder, 'a.safetensors');
  const data = Float32Array.of(1, -0, 1e-40, Infinity, 0.1, -3.5e38 / 2);
  await writeSafetensors(path, [
    { name: 'x', shape: [2, 3], data },
    { name: 'y', shape: [1], data: Float32Array.of(7) },
  ]);
  await using file = await SafetensorsReader.open(path);
  t.same(file.tensors.get('x')?.shape, [2, 3]);
  t.same(new Uint32Array((await file.read('x')).buffer), new Uint32Array(data.buffer));
  t.same(await file.read('y'), Float32Array.of(7));
  t.same(
    (await readdir(folder)).filter(name => name.endsWith('.tmp')),
    [],
  );
  await t.rejects(file.read('z'), /has no tensor z; it has x, y/);
  await t.rejects(file.read('x', new Float32Array(5)), /6 elements, where 5 are expected/);
});

t.test('bf16 is rounded to nearest even', async t => {
  const path = join(folder, 'b.safetensors');
  const data = Float32Array.of(1, 1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 + 2 ** -8 + 2 ** -20, -Infinity, NaN);
  await writeSafetensors(path, [{ name: 'x', shape: [6], data }], { type: 'BF16' });
  await using file = await SafetensorsReader.open(path);
  t.same(await file.read('x'), Float32Array.of(1, 1, 1 + 2 ** -6, 1 + 2 ** -7, -Infinity, NaN));
});

t.test('a tensor of several pieces comes back whole, in shared memory too', async t => {
  const path = join(folder, 'large.safetensors');
  const count = 2 ** 21 + 5;
  const data = Float32Array.from({ length: count }, (_, i) => i % 251);
  for (const type of ['F32', 'BF16'] as const) {
    await writeSafetensors(path, [{ name: 'x', shape: [count], data }], { type });
    await using file = await SafetensorsReader.open(path);
    const target = new Float32Array(new SharedArrayBuffer(4 * count));
    await file.read('x', target);
    t.equal(
      target.findIndex((x, i) => x !== data[i]),
      -1,
      type,
    );
  }
});

t.test('f16 is read with its subnormals', async t => {
  const half = Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x7c00, 0x3555);
  const path = await handWritten(
    'c.safetensors',
    { x: { dtype: 'F16', shape: [5], data_offsets: [0, 10] } },
    new Uint8Array(half.buffer),
  );
  await using file = await SafetensorsReader.open(path);
  t.same(await file.read('x'), Float32Array.of(1, -2, 2 ** -24, Infinity, 0.333251953125));
});

t.test('a sharded checkpoint is read through its index', async t => {
  await writeSafetensors(join(folder, 'm-1.safetensors'), [
    { name: 'a', shape: [1], data: Float32Array.of(1) },
  ]);
  await writeSafetensors(join(folder, 'm-2.safetensors'), [
    { name: 'b', shape: [1], data: Float32Array.of(2) },
  ]);
  const index = (b: string) => JSON.stringify({ weight_map: { a: 'm-1.safetensors', b } });
  await writeFile(join(folder, 'm.safetensors.index.json'), index('m-2.safetensors'));
  {
    await using file = await SafetensorsReader.open(join(folder, 'm.safetensors'));
    t.same([...file.tensors.keys()].sort(), ['a', 'b']);
    t.same(await file.read('b'), Float32Array.of(2));
  }
  await writeFile(join(folder, 'm.safetensors.index.json'), index('m-1.safetensors'));
  await t.rejects(SafetensorsReader.open(join(folder, 'm.safetensors')), /places b in m-1\.safetensors/);
  await writeSafetensors(join(folder, 'm-2.safetensors'), [
    { name: 'a', shape: [1], data: Float32Array.of(2) },
  ]);
  await writeFile(join(folder, 'm.safetensors.index.json'), index('m-2.safetensors'));
  await t.rejects(
    SafetensorsReader.open(join(folder, 'm.safetensors')),
    /m-2\.safetensors holds a, as another shard does/,
  );
});

t.test('broken files are rejected with the reason', async t => {
  await t.rejects(SafetensorsReader.open(join(folder, 'none')), /neither .*none nor .*none\.index\.json/);
  const short = await handWritten(
    'd',
    { x: { dtype: 'F32', shape: [4], data_offsets: [0, 16] } },
    new Uint8Array(8),
  );
  await t.rejects(SafetensorsReader.open(short), /needs 16 bytes, its place is 0 to 16 of 8/);
  const int = await handWritten(
    'e',
    { x: { dtype: 'I64', shape: [1], data_offsets: [0, 8] } },
    new Uint8Array(8),
  );
  await t.rejects(SafetensorsReader.open(int), /stored as I64; readable are F32, F16, BF16/);
  for (const header of [null, [], 3])
    await t.rejects(
      SafetensorsReader.open(await handWritten('g', header, new Uint8Array())),
      /has a header that is no JSON object/,
    );
  await writeFile(join(folder, 'f'), await readFile(new URL(import.meta.url)));
  await t.rejects(SafetensorsReader.open(join(folder, 'f')), /not a safetensors file/);
  const empty = { dtype: 'F32', shape: [0], data_offsets: [0, 0] };
  const entries = Object.fromEntries(Array.from({ length: 300_000 }, (_, i) => [`t${i}`, empty]));
  const long = await handWritten('long', entries, new Uint8Array());
  await t.rejects(SafetensorsReader.open(long), /a header of 1\d{7} bytes; at most 16777216 are read/);
});

const shardedSafetensorsFolder = await mkdtemp(join(tmpdir(), 'ragen-shards-'));
t.after(() => rm(shardedSafetensorsFolder, { recursive: true }));
const path = join(shardedSafetensorsFolder, 'model.safetensors');

const tensors = [3, 2, 4].map((length, n) => ({
  name: `t${n}`,
  shape: [length],
  data: Float32Array.from({ length }, (_, i) => 10 * n + i),
}));

async function readBack(): Promise<number[][]> {
  await using file = await SafetensorsReader.open(path);
  return Promise.all(tensors.map(async ({ name }) => [...(await file.read(name))]));
}

t.test('large weights go to numbered files with an index, and load again', async t => {
  await writeShardedSafetensors(path, tensors);
  t.same((await readdir(shardedSafetensorsFolder)).sort(), [
    'model.safetensors',
    'model.safetensors.index.json',
  ]);
  const expected = tensors.map(({ data }) => [...data]);
  await writeShardedSafetensors(path, tensors, { shardBytes: 20 });
  t.same((await readdir(shardedSafetensorsFolder)).sort(), [
    'model-00001-of-00002.safetensors',
    'model-00002-of-00002.safetensors',
    'model.safetensors.index.json',
  ]);
  t.same(await readBack(), expected);
  const index = JSON.parse(await readFile(`${path}.index.json`, 'utf8'));
  t.same(index, {
    metadata: { total_size: 36 },
    weight_map: {
      t0: 'model-00001-of-00002.safetensors',
      t1: 'model-00001-of-00002.safetensors',
      t2: 'model-00002-of-00002.safetensors',
    },
  });
  await writeShardedSafetensors(path, tensors, { shardBytes: 1 });
  t.equal(
    (await readdir(shardedSafetensorsFolder)).length,
    4,
    'three shards and an index; the two before are gone',
  );
  t.same(await readBack(), expected);
  await writeShardedSafetensors(path, tensors, { type: 'BF16' });
  t.same((await readdir(shardedSafetensorsFolder)).sort(), [
    'model.safetensors',
    'model.safetensors.index.json',
  ]);
  t.same(await readBack(), expected);
});

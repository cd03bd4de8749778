import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { SafetensorsReader } from './safetensors.ts';
import { writeShardedSafetensors } from './sharded-safetensors.ts';

const folder = await mkdtemp(join(tmpdir(), 'ragen-shards-'));
t.after(() => rm(folder, { recursive: true }));
const path = join(folder, 'model.safetensors');

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
  t.same((await readdir(folder)).sort(), ['model.safetensors', 'model.safetensors.index.json']);
  const expected = tensors.map(({ data }) => [...data]);
  await writeShardedSafetensors(path, tensors, { shardBytes: 20 });
  t.same((await readdir(folder)).sort(), [
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
  t.equal((await readdir(folder)).length, 4, 'three shards and an index; the two before are gone');
  t.same(await readBack(), expected);
  await writeShardedSafetensors(path, tensors, { type: 'BF16' });
  t.same((await readdir(folder)).sort(), ['model.safetensors', 'model.safetensors.index.json']);
  t.same(await readBack(), expected);
});

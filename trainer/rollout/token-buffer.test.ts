import t from 'tap';
import { TokenBuffer } from './token-buffer.ts';

t.test('a buffer grows and keeps everything', async t => {
  const buffer = new TokenBuffer();
  const context = Array.from({ length: 300 }, (_, i) => i);
  buffer.addContext(context);
  const place = buffer.addSampled({
    tokenIds: Int32Array.from({ length: 700 }, (_, i) => 300 + i),
    logProbs: new Float32Array(700).fill(-2),
    values: new Float32Array(700).fill(3),
    versions: new Int32Array(700).fill(4),
  });
  t.same(place, [300, 1000]);
  const { tokenIds, lossMask, logProbs, values, versions } = buffer.sample();
  t.equal(buffer.length, 1000);
  t.ok(tokenIds.every((id, i) => id === i));
  t.ok(lossMask.every((bit, i) => bit === (i < 300 ? 0 : 1)));
  t.ok(logProbs.every((value, i) => value === -2 * lossMask[i]));
  t.ok(values!.every((value, i) => value === 3 * lossMask[i]));
  t.ok(versions.every((value, i) => value === 4 * lossMask[i]));
});

t.test('without a value head there are no values', async t => {
  const buffer = new TokenBuffer();
  buffer.addSampled({ tokenIds: [1, 2] });
  t.equal(buffer.sample().values, undefined);
});

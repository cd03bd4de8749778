import t from 'tap';
import { isInSplit, splitOf } from './splits.ts';

t.test('levels fall into the parts in the proportion 8 : 1 : 1', async t => {
  const counts = { train: 0, validation: 0, test: 0 };
  for (let i = 0; i < 20_000; i++) counts[splitOf(`level ${i}`)]++;
  t.ok(Math.abs(counts.train - 16_000) < 250, String(counts.train));
  t.ok(Math.abs(counts.validation - 2000) < 200, String(counts.validation));
  t.ok(Math.abs(counts.test - 2000) < 200, String(counts.test));
});

t.test('a level is in one part, and in any', async t => {
  for (let i = 0; i < 100; i++) {
    const level = `level ${i}`;
    t.ok(isInSplit(level, 'any'));
    t.equal((['train', 'validation', 'test'] as const).filter(split => isInSplit(level, split)).length, 1);
  }
  t.equal(splitOf('#P_XO#'), 'train', 'the same on every machine');
});

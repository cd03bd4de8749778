import t from 'tap';
import { countLossTokens } from './aggregation.ts';
import { aggregate } from './reference.test-data.ts';
import { AGGREGATIONS } from './settings.ts';

t.test('padding sequences, masked tokens and entropy masks count as they should', async t => {
  const counts = countLossTokens([
    { lossMask: [0, 1, 1, 1], entropyMask: [1, 1, 0, 0] },
    { lossMask: [0, 0, 0, 1], entropyMask: [0, 0, 0, 0] },
    { lossMask: [0, 0, 0, 0] },
    { lossMask: [1, 1, 1, 1], weight: 0 },
  ]);
  t.same(counts, { tokens: 4, sequences: 2, entropyTokens: 1, entropySequences: 1 });
});

t.test('tokens outside the loss mask never leak', async t => {
  for (const aggregation of AGGREGATIONS) {
    const found = aggregate([[Number.NaN, 2, Number.POSITIVE_INFINITY]], [[0, 1, 0]], aggregation, 4);
    t.equal(found, aggregation === 'dr_grpo' ? 0.5 : 2, aggregation);
  }
});

t.test('only token_mean lets long sequences count more', async t => {
  const short = [1];
  const long = [0, 0, 0];
  const lossMasks = [short, long].map(row => row.map(() => 1));
  t.equal(aggregate([short, long], lossMasks, 'token_mean', 3), 1 / 4);
  t.equal(aggregate([short, long], lossMasks, 'seq_mean_token_mean', 3), 1 / 2);
});

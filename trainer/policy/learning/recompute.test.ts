import t from 'tap';
import { closing, config, largestDifference, play, policyWith, settingsWith } from '../policies.test-data.ts';

t.test('recomputed layers and smaller micro-batches leave an update what it is', async t => {
  const model = { ...config, layers: 2, queryKeyNorm: 'head' as const };
  const usual = await closing(t, policyWith({ model }));
  const sequences = await play(usual, 4);
  const expected = await usual.update({ sequences }, settingsWith());
  const scores = await usual.score(sequences);
  const policy = await closing(t, policyWith({ model, recompute: true, tokenBudget: 32 }));
  const metrics = await policy.update({ sequences }, settingsWith());
  for (const [name, value] of Object.entries(expected)) {
    t.ok(Math.abs(metrics[name] - value) <= 1e-5 * Math.max(1, Math.abs(value)), name);
  }
  const after = await policy.score(sequences);
  scores.forEach(({ logProbs }, i) => {
    t.ok(largestDifference(logProbs, after[i].logProbs) < 1e-4, `after the step, sequence ${i}`);
  });
});

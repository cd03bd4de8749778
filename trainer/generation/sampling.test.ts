import t from 'tap';
import { Random } from '../../shared/random.ts';
import type { SamplingSettings } from './generation.ts';
import { checkSampling, Sampler } from './sampling.ts';

const plain: SamplingSettings = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 1, stopTokenIds: [] };
/** Probabilities at temperature 1: 0.4, 0.3, 0.2, 0.1 at ids 2, 0, 3, 1. */
const logits = Float32Array.of(99, Math.log(0.3), Math.log(0.1), Math.log(0.4), Math.log(0.2));
const START = 1;

/** Shares of many samples, and the log-probability each token was reported with. */
function sampleMany(settings: SamplingSettings, allowed: Uint8Array | null = null) {
  const sampler = new Sampler(4);
  const rng = Random.fromSeed(7);
  const count = 20_000;
  const shares = [0, 0, 0, 0];
  const logProbs = [NaN, NaN, NaN, NaN];
  for (let i = 0; i < count; i++) {
    const { token, logProb } = sampler.sample(logits, START, settings, rng, { allowed });
    shares[token] += 1 / count;
    logProbs[token] = logProb;
  }
  return { shares, logProbs };
}

const cases: [string, Partial<SamplingSettings>, number[], Uint8Array?][] = [
  ['the softmax', {}, [0.3, 0.1, 0.4, 0.2]],
  ['temperature 1/2 squares the odds', { temperature: 0.5 }, [0.3, 0.1, 0.4, 0.2].map(p => p ** 2 / 0.3)],
  ['top-k keeps the k likeliest', { topK: 2 }, [3 / 7, 0, 4 / 7, 0]],
  ['top-p keeps the smallest set that reaches p', { topP: 0.6 }, [3 / 7, 0, 4 / 7, 0]],
  ['top-p keeps at least one', { topP: 0.01 }, [0, 0, 1, 0]],
  ['top-p counts within top-k', { topK: 3, topP: 0.7 }, [3 / 7, 0, 4 / 7, 0]],
  ['min-p keeps what has that share of the largest', { minP: 0.6 }, [3 / 7, 0, 4 / 7, 0]],
  ['min-p keeps the largest', { minP: 1 }, [0, 0, 1, 0]],
  ['min-p counts after the temperature', { temperature: 0.5, minP: 0.3 }, [9 / 25, 0, 16 / 25, 0]],
  ['a mask takes tokens out before all else', { topK: 2 }, [0, 1 / 3, 0, 2 / 3], Uint8Array.of(0, 1, 0, 1)],
];
for (const [name, change, expected, allowed] of cases) {
  t.test(`samples from ${name}`, async t => {
    const { shares, logProbs } = sampleMany({ ...plain, ...change }, allowed ?? null);
    expected.forEach((p, token) => {
      t.ok(Math.abs(shares[token] - p) < 0.015, `share of ${token}: ${shares[token]}, expected ${p}`);
      if (p > 0) t.ok(Math.abs(logProbs[token] - Math.log(p)) < 1e-6, `log-probability of ${token}`);
    });
  });
}

t.test('top-k keeps the first of equal logits', async t => {
  const sampler = new Sampler(4);
  const rng = Random.fromSeed(3);
  const seen = new Set<number>();
  for (let i = 0; i < 200; i++) {
    seen.add(sampler.sample(Float32Array.of(1, 2, 1, 1), 0, { ...plain, topK: 2 }, rng).token);
  }
  t.same([...seen].sort(), [0, 1]);
});

t.test('temperature 0 takes the largest, the first of equals', async t => {
  const sampler = new Sampler(3);
  const sample = (row: number[]) =>
    sampler.sample(Float32Array.from(row), 0, { ...plain, temperature: 0 }, Random.fromSeed(1));
  t.match(sample([1, 5, 5]), { token: 1, logProb: 0 });
  t.throws(() => sample([1, NaN, 5]), /logits are NaN/);
});

t.test('settings out of range are refused by name', async t => {
  t.throws(
    () => checkSampling({ ...plain, temperature: -1 }),
    /temperature must be a number of at least 0, got -1/,
  );
  t.throws(() => checkSampling({ ...plain, topK: 1.5 }), /topK/);
  t.throws(() => checkSampling({ ...plain, topP: 1.1 }), /topP/);
  t.throws(() => checkSampling({ ...plain, minP: -0.1 }), /minP must be from 0 to 1, got -0.1/);
  t.throws(() => checkSampling({ ...plain, maxNewTokens: 0 }), /maxNewTokens/);
});

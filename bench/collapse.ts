/**
 * Scores 64 thoughts under 64 prompts with each prompt computed once, and as 4,096 whole sequences: `npm run bench:collapse`.
 * A policy of the size of configs/sokoban-nano.yaml; tokens, seconds and the largest difference in nats per token.
 */
import { Random } from '../shared/random.ts';
import { scratchConfig } from '../trainer/models/config.ts';
import { LocalPolicy } from '../trainer/policy/local-policy.ts';

const SAMPLES = 64;
const SHAPES = [
  { prompt: 40, thought: 10 },
  { prompt: 160, thought: 40 },
];
const vocabularySize = 64;

for (const { prompt, thought } of SHAPES) {
  const policy = await LocalPolicy.create({
    model: scratchConfig({
      vocabularySize,
      hiddenSize: 64,
      heads: 4,
      layers: 4,
      intermediateSize: 160,
      maxPositions: 512,
    }),
    seed: 0,
    valueHead: false,
    maxOpenSequences: 1,
  });
  const random = Random.fromSeed(1);
  const ids = (length: number) => Int32Array.from({ length }, () => random.integer(vocabularySize));
  const prompts = Array.from({ length: SAMPLES }, () => ids(prompt));
  const continuations = Array.from({ length: SAMPLES }, () => ids(thought));
  const timed = async <T>(work: () => Promise<T>) => {
    await work();
    const started = performance.now();
    const result = await work();
    return { result, seconds: (performance.now() - started) / 1000 };
  };
  const shared = await timed(() =>
    policy.scoreContinuations(prompts.map(own => ({ prompt: own, continuations }))),
  );
  const whole = await timed(() =>
    policy.score(
      prompts.flatMap(own =>
        continuations.map(continuation => {
          const tokenIds = Int32Array.of(...own, ...continuation);
          return { tokenIds, lossMask: new Uint8Array(tokenIds.length).fill(1, own.length) };
        }),
      ),
    ),
  );
  let worst = 0;
  whole.result.forEach(({ logProbs }, n) => {
    const sum = logProbs.reduce((total, x) => total + x, 0);
    const own = shared.result[Math.floor(n / SAMPLES)][n % SAMPLES];
    worst = Math.max(worst, Math.abs(own - sum) / thought);
  });
  const tokens = {
    shared: SAMPLES * prompt + SAMPLES ** 2 * thought,
    whole: SAMPLES ** 2 * (prompt + thought),
  };
  console.log(
    `|x| ${prompt}, |z| ${thought}: shared ${tokens.shared} tokens in ${shared.seconds.toFixed(2)} s, whole ${tokens.whole} in ` +
      `${whole.seconds.toFixed(2)} s: ${(tokens.whole / tokens.shared).toFixed(2)} times fewer tokens, ` +
      `${(whole.seconds / shared.seconds).toFixed(1)} times faster; largest difference ${worst.toExponential(1)} nats per token`,
  );
  await policy.close();
}

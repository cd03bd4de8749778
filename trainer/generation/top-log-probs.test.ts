import t from 'tap';
import { scratchConfig } from '../models/config.ts';
import { initialize, parameterSpecs } from '../models/parameters.ts';
import { OnnxRuntime } from '../tensor/runtime/onnx/onnx-runtime.ts';
import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { GenerationEngine } from './engine.ts';
import type { GenerateRequest, Generation, StreamedToken } from './generation.ts';

const runtime = new OnnxRuntime();
t.after(() => runtime.close());

const config = scratchConfig({
  vocabularySize: 20,
  hiddenSize: 16,
  heads: 2,
  layers: 1,
  initializerRange: 0.5,
});
const specs = parameterSpecs(config, false);
const parameters = new ParameterStore(specs);
initialize(parameters, specs, config.initializerRange, 1);

const request: GenerateRequest = {
  sequenceId: 1,
  append: [3, 4, 5],
  sampling: { temperature: 0.7, topK: 0, topP: 1, maxNewTokens: 6, stopTokenIds: [] },
  seed: 5,
};

async function run(asked: GenerateRequest, watch?: (token: StreamedToken) => void): Promise<Generation> {
  const engine = new GenerationEngine({
    config,
    valueHead: false,
    runtime,
    parameters,
    maxSequenceLength: 64,
    maxOpenSequences: 4,
  });
  const result = new Promise<Generation>((resolve, reject) => engine.submit(asked, resolve, reject, watch));
  result.catch(() => {});
  while (engine.busy) await engine.tick();
  return result;
}

t.test('a watch is called with each token as it is sampled', async t => {
  const seen: StreamedToken[] = [];
  const generation = await run(request, token => seen.push(token));
  t.same(
    seen.map(({ tokenId }) => tokenId),
    [...generation.tokenIds],
  );
  t.same(
    Float32Array.from(seen, ({ logProb }) => logProb),
    generation.logProbs,
  );
});

t.test('top log-probabilities change no token and agree with the sampled one', async t => {
  const plain = await run(request);
  const ranked = await run({ ...request, topLogProbs: 20 });
  t.same(ranked.tokenIds, plain.tokenIds);
  t.equal(plain.top, undefined);
  t.equal(ranked.top!.length, plain.tokenIds.length);
  for (const [i, { logProb, tokenIds, logProbs }] of ranked.top!.entries()) {
    t.equal(Math.fround(logProb), plain.logProbs[i]);
    t.equal(new Set(tokenIds).size, 20, 'every token once');
    t.equal(logProbs[tokenIds.indexOf(plain.tokenIds[i])], Math.fround(logProb));
    t.same(logProbs, logProbs.toSorted().reverse(), 'the most probable first');
    t.ok(Math.abs(logProbs.reduce((sum, x) => sum + Math.exp(x), 0) - 1) < 1e-5, 'they add up to 1');
  }
});

t.test('top log-probabilities at temperature 0 are those of temperature 1', async t => {
  const greedy = await run({ ...request, sampling: { ...request.sampling, temperature: 0 }, topLogProbs: 2 });
  for (const [i, { tokenIds, logProb, logProbs }] of greedy.top!.entries()) {
    t.equal(tokenIds[0], greedy.tokenIds[i]);
    t.equal(Math.fround(logProb), logProbs[0]);
    t.ok(logProb < 0);
  }
});

t.test('top-k leaves only what can be sampled', async t => {
  const cut = await run({ ...request, sampling: { ...request.sampling, topK: 3 }, topLogProbs: 5 });
  for (const { tokenIds } of cut.top!) t.equal(tokenIds.length, 3);
});

t.test('a request may bring a grammar', async t => {
  const grammar = {
    start: 0,
    states: [
      { tokens: [3, 4], next: [1, 1] },
      { tokens: [7], next: [2] },
      { tokens: [], next: [] },
    ],
  };
  const { tokenIds, finishReason, top } = await run({ ...request, grammar, topLogProbs: 4 });
  t.ok([3, 4].includes(tokenIds[0]));
  t.equal(tokenIds[1], 7);
  t.equal(tokenIds.length, 2);
  t.equal(finishReason, 'stop');
  t.equal(top![1].tokenIds.length, 1);
});

t.test('a number of top log-probabilities out of range is refused', async t => {
  await t.rejects(
    run({ ...request, topLogProbs: 21 }),
    /topLogProbs must be an integer from 0 to 20, got 21/,
  );
});

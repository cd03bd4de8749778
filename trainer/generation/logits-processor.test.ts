import t from 'tap';
import { Random } from '../../shared/random.ts';
import { golden } from '../../test/golden.test-data.ts';
import { scratchConfig } from '../models/config.ts';
import { initialize, parameterSpecs } from '../models/parameters.ts';
import { OnnxRuntime } from '../tensor/runtime/onnx/onnx-runtime.ts';
import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import type { Runtime } from '../tensor/runtime/runtime.ts';
import { KernelCpuRuntime } from '../tensor/runtime/webgpu/cpu-runtime.test-data.ts';
import { GenerationEngine } from './engine.ts';
import type { GenerateRequest, Generation, LogitSettings, SamplingSettings } from './generation.ts';
import { LogitsProcessor } from './logits-processor.ts';
import { Sampler } from './sampling.ts';

interface Golden {
  readonly prompt: readonly number[];
  readonly response: readonly number[];
  readonly cases: readonly {
    readonly settings: {
      readonly temperature?: number;
      readonly top_k?: number;
      readonly top_p?: number;
      readonly min_p?: number;
      readonly repetition_penalty?: number;
      readonly presence_penalty?: number;
      readonly frequency_penalty?: number;
      readonly logit_bias?: Readonly<Record<string, number>>;
      readonly bad_words?: readonly (readonly number[])[];
    };
    readonly logits: readonly number[];
    /** Null is −∞. */
    readonly processed: readonly (number | null)[];
    readonly log_probs: readonly (number | null)[];
  }[];
}

/** Bad words of the tests are ids: "4 9". */
const encode = (text: string) =>
  text
    .split(' ')
    .filter(word => word !== '')
    .map(Number);
const { prompt, response, cases } = golden<Golden>('logits_processors.json');
const plain: SamplingSettings = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 1, stopTokenIds: [] };

function processorOf(settings: LogitSettings, vocabularySize: number): LogitsProcessor {
  const processor = LogitsProcessor.create(settings, Int32Array.from(prompt), vocabularySize, encode);
  if (processor === null) throw new Error('changes nothing');
  for (const token of response) processor.take(token);
  return processor;
}

for (const { settings, logits, processed, log_probs } of cases) {
  t.test(`logits and distribution equal transformers: ${JSON.stringify(settings)}`, async t => {
    const row = Float32Array.from(logits);
    const sampling: SamplingSettings = {
      ...plain,
      temperature: settings.temperature ?? 1,
      topK: settings.top_k ?? 0,
      topP: settings.top_p ?? 1,
      minP: settings.min_p,
      repetitionPenalty: settings.repetition_penalty,
      presencePenalty: settings.presence_penalty,
      frequencyPenalty: settings.frequency_penalty,
      logitBias: settings.logit_bias,
      badWords: settings.bad_words?.map(ids => ids.join(' ')),
    };
    const changes = Object.keys(settings).some(key => !/^(temperature|top_|min_p)/.test(key));
    const processor = changes ? processorOf(sampling, row.length) : null;
    const after = row.slice();
    processor?.process(after);
    processed.forEach((value, id) => {
      const expected = value ?? Number.NEGATIVE_INFINITY;
      t.ok(after[id] === expected || Math.abs(after[id] - expected) < 1e-5, `logit of ${id}`);
    });
    const sampler = new Sampler(row.length);
    const { token } = sampler.sample(row, 0, sampling, Random.fromSeed(1), { processor });
    const { tokenIds, logProbs } = sampler.top(token, row.length);
    const kept = log_probs.flatMap((value, id) => (value === null ? [] : [id]));
    t.same(
      [...tokenIds].sort((a, b) => a - b),
      kept,
      'the tokens that can be sampled',
    );
    tokenIds.forEach((id, i) => {
      t.ok(Math.abs(logProbs[i] - log_probs[id]!) < 1e-5, `log-probability of ${id}`);
    });
  });
}

t.test('samples follow the changed distribution, and log-probabilities are those under it', async t => {
  const { settings, logits, log_probs } = cases.at(-1)!;
  const row = Float32Array.from(logits);
  const sampling = {
    ...plain,
    temperature: settings.temperature!,
    topK: settings.top_k!,
    topP: settings.top_p!,
    minP: settings.min_p,
  };
  const processor = processorOf(
    {
      repetitionPenalty: settings.repetition_penalty,
      presencePenalty: settings.presence_penalty,
      frequencyPenalty: settings.frequency_penalty,
      logitBias: settings.logit_bias,
      badWords: settings.bad_words!.map(ids => ids.join(' ')),
    },
    row.length,
  );
  const sampler = new Sampler(row.length);
  const rng = Random.fromSeed(3);
  const count = 20_000;
  const shares = row.map(() => 0);
  for (let i = 0; i < count; i++) {
    const { token, logProb } = sampler.sample(row, 0, sampling, rng, { processor });
    shares[token] += 1 / count;
    if (i < 200) t.ok(Math.abs(logProb - log_probs[token]!) < 1e-5);
  }
  log_probs.forEach((logProb, id) => {
    const expected = logProb === null ? 0 : Math.exp(logProb);
    t.ok(Math.abs(shares[id] - expected) < 0.015, `share of ${id}`);
  });
});

t.test('settings out of range are refused by name', async t => {
  const create = (settings: LogitSettings) => () =>
    LogitsProcessor.create(settings, Int32Array.of(1), 24, encode);
  t.throws(create({ repetitionPenalty: 0 }), /repetitionPenalty must be a number above 0, got 0/);
  t.throws(create({ presencePenalty: 3 }), /presencePenalty must be from -2 to 2, got 3/);
  t.throws(create({ frequencyPenalty: Number.NaN }), /frequencyPenalty must be from -2 to 2, got NaN/);
  t.throws(create({ logitBias: { 24: 1 } }), /logitBias names token 24, outside the vocabulary of 24/);
  t.throws(create({ logitBias: { a: 1 } }), /logitBias names a, which is not a token id/);
  t.throws(create({ logitBias: { 1: 101 } }), /logitBias of 1 must be from -100 to 100, got 101/);
  t.throws(create({ badWords: [' '] }), /a bad word must not be empty/);
  const without = () => LogitsProcessor.create({ badWords: ['1'] }, Int32Array.of(1), 24, undefined);
  t.throws(without, /bad words need a tokenizer/);
  t.equal(
    LogitsProcessor.create({ repetitionPenalty: 1, logitBias: {} }, Int32Array.of(1), 24, encode),
    null,
  );
});

t.test('a bad word counts with a space in front where that is another first token, as in vLLM', async t => {
  const ids: Record<string, number[]> = { no: [3, 4], ' no': [5, 4], way: [6], ' way': [7, 6] };
  const processor = LogitsProcessor.create({ badWords: ['no', ' way'] }, new Int32Array(0), 8, w => ids[w])!;
  const forbidden = () => {
    const row = new Float32Array(8);
    processor.process(row);
    return [...row.keys()].filter(id => row[id] === Number.NEGATIVE_INFINITY);
  };
  t.same(forbidden(), [6]);
  processor.take(5);
  t.same(forbidden(), [4, 6]);
});

t.test('the bad words of several choices are tokenized once', async t => {
  let tokenized = 0;
  const encode = (word: string) => {
    tokenized++;
    return [word.length];
  };
  const create = (...badWords: string[]) =>
    LogitsProcessor.create({ badWords }, new Int32Array(0), 8, encode)!;
  for (let choice = 0; choice < 3; choice++) create('no', 'way');
  t.equal(tokenized, 4);
  const row = new Float32Array(8);
  create('way').process(row);
  t.same(
    [...row.keys()].filter(id => row[id] === Number.NEGATIVE_INFINITY),
    [3, 4],
  );
  t.equal(tokenized, 6);
});

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

async function generate(runtime: Runtime, requests: readonly GenerateRequest[]): Promise<Generation[]> {
  const engine = new GenerationEngine({
    config,
    valueHead: false,
    runtime,
    parameters,
    maxSequenceLength: 64,
    maxOpenSequences: 8,
    encode,
  });
  const results = requests.map(
    request => new Promise<Generation>((resolve, reject) => engine.submit(request, resolve, reject)),
  );
  while (engine.busy) await engine.tick();
  return Promise.all(results);
}

/** Requests of every kind in one batch; `greedy` makes their tokens independent of the runtime's rounding. */
const sampling = { ...plain, maxNewTokens: 12 };
const kinds: readonly Omit<GenerateRequest, 'sequenceId'>[] = [
  { append: [3, 4, 5], sampling, seed: 1 },
  { append: [3, 4, 5], sampling: { ...sampling, repetitionPenalty: 5 }, seed: 1 },
  { append: [3, 4, 5], sampling: { ...sampling, frequencyPenalty: 2, presencePenalty: 2 }, seed: 2 },
  {
    append: [6, 7],
    sampling: { ...sampling, badWords: ['8', '9 10'], logitBias: { 11: -100, 9: 3 } },
    seed: 3,
  },
  { append: [6, 7], sampling: { ...sampling, minP: 0.2 }, seed: 4, topLogProbs: 3 },
  {
    append: [2],
    sampling,
    seed: 5,
    grammar: {
      start: 0,
      states: [
        { tokens: [3, 4], next: [1, 0] },
        { tokens: [], next: [] },
      ],
    },
  },
];

t.test(
  'an engine samples each request by its own settings, the same on a device as on the processor',
  async t => {
    const onnx = new OnnxRuntime();
    const device = new KernelCpuRuntime();
    t.teardown(async () => {
      await onnx.close();
      await device.close();
    });
    const requests = kinds.map((kind, sequenceId) => ({ ...kind, sequenceId }));
    const here = await generate(onnx, requests);
    const there = await generate(device, requests);
    here.forEach(({ tokenIds, logProbs, top }, i) => {
      t.same(there[i].tokenIds, tokenIds, `tokens of ${i}`);
      logProbs.forEach((logProb, at) => {
        t.ok(Math.abs(there[i].logProbs[at] - logProb) < 1e-4, `log-probability ${at} of ${i}`);
      });
      t.equal(there[i].top?.length, top?.length);
    });
    const [, , , biased, cut, bound] = here;
    t.notOk(biased.tokenIds.some(id => id === 8 || id === 11));
    t.notOk(biased.tokenIds.some((id, i) => id === 10 && biased.tokenIds[i - 1] === 9));
    for (const { logProbs } of cut.top!)
      t.ok(logProbs.every(logProb => logProb >= logProbs[0] + Math.log(0.2) - 1e-5));
    t.ok(bound.tokenIds.every(id => id === 3 || id === 4));
    const alone = await Promise.all(requests.map(request => generate(device, [request])));
    alone.forEach(([{ tokenIds }], i) => {
      t.same(tokenIds, there[i].tokenIds, 'other requests change nothing');
    });
  },
);

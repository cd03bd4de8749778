import { readFileSync } from 'node:fs';
import t from 'tap';
import { Random } from '../../shared/random.ts';
import { type DecoderConfig, scratchConfig } from '../models/config.ts';
import { parseConfig } from '../models/config-json.ts';
import { decoderHidden, decoderLogits, decoderValues } from '../models/decoder.ts';
import { SafetensorsReader } from '../models/files/safetensors.ts';
import { parameterSpecs } from '../models/parameters.ts';
import { rightPadded } from '../models/sequence-layout.ts';
import { GraphBuilder } from '../tensor/graph/graph.ts';
import { OnnxRuntime } from '../tensor/runtime/onnx/onnx-runtime.ts';
import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { type EngineOptions, GenerationEngine } from './engine.ts';
import type { GenerateRequest, Generation, SamplingSettings } from './generation.ts';
import { compileGrammar } from './grammar.ts';
import type { DecodeProgramKind } from './programs/decode-program.ts';

const runtime = new OnnxRuntime();
t.after(() => runtime.close());

const sampled: SamplingSettings = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 8, stopTokenIds: [] };
const greedy: SamplingSettings = { ...sampled, temperature: 0 };

const config = scratchConfig({ vocabularySize: 20, hiddenSize: 32, heads: 4, keyValueHeads: 2, layers: 2 });

function randomWeights(shape: DecoderConfig, seed: number): ParameterStore {
  const store = new ParameterStore(parameterSpecs(shape, true));
  const rng = Random.fromSeed(seed);
  for (const { name } of store.layout) {
    const array = store.array(name);
    const base = name.includes('norm') ? 1 : 0;
    for (let i = 0; i < array.length; i++) array[i] = base + 0.3 * rng.normal();
  }
  return store;
}

const parameters = randomWeights(config, 1);

function engineWith(options: Partial<EngineOptions> = {}): GenerationEngine {
  return new GenerationEngine({
    config,
    valueHead: true,
    runtime,
    parameters,
    maxSequenceLength: 96,
    maxOpenSequences: 16,
    ...options,
  });
}

async function runAll(engine: GenerationEngine, requests: readonly GenerateRequest[]): Promise<Generation[]> {
  const results = requests.map(
    request => new Promise<Generation>((resolve, reject) => engine.submit(request, resolve, reject)),
  );
  const all = Promise.all(results);
  all.catch(() => {});
  while (engine.busy) await engine.tick();
  return all;
}

const prompt = (seed: number, length: number): number[] => {
  const rng = Random.fromSeed(seed);
  return Array.from({ length }, () => rng.integer(config.vocabularySize));
};

/** log π and V of a whole sequence by one full forward pass; entry t is about token t. */
async function fullForward(weights: ParameterStore, tokens: readonly number[]) {
  const g = new GraphBuilder();
  const time = tokens.length;
  const ids = g.input('ids', 'int32', [1, time]);
  const hidden = decoderHidden(g, config, ids, rightPadded(g, config, 1, time));
  g.output('logProbs', g.logSoftmax(decoderLogits(g, config, hidden)));
  g.output('values', decoderValues(g, config, hidden));
  const executable = await runtime.compile(g.build(), { parameters: weights });
  const { logProbs, values } = await executable.run({ ids: Int32Array.from(tokens) });
  return {
    logProb: (t: number) => logProbs[(t - 1) * config.vocabularySize + tokens[t]],
    value: (t: number) => values[t - 1],
  };
}

const PROGRAMS: readonly DecodeProgramKind[] = ['kernels', 'segments'];
const pairs = <A, B>(a: readonly A[], b: readonly B[]) => a.flatMap(x => b.map(y => [x, y] as const));

for (const [model, program] of pairs(['qwen2-tiny', 'qwen3-tiny', 'llama-tiny'], PROGRAMS)) {
  t.test(`${model} in ${program} continues the golden prompt greedily as transformers does`, async t => {
    const folder = new URL(`../../test/golden/models/${model}/`, import.meta.url);
    const read = (name: string) => JSON.parse(readFileSync(new URL(name, folder), 'utf8'));
    const { greedy: golden } = read('expected.json');
    const goldenConfig = parseConfig(read('config.json'));
    const store = new ParameterStore(parameterSpecs(goldenConfig, false));
    await using file = await SafetensorsReader.open(new URL('model.safetensors', folder).pathname);
    for (const { name } of store.layout) await file.read(name, store.array(name));
    const engine = engineWith({
      config: goldenConfig,
      program,
      valueHead: false,
      parameters: store,
      maxSequenceLength: 200,
    });
    const request = {
      sequenceId: 1,
      append: golden.prompt_ids,
      sampling: { ...greedy, maxNewTokens: golden.generated_ids.length },
      seed: 0,
    };
    const [generation] = await runAll(engine, [request]);
    t.same([...generation.tokenIds], golden.generated_ids);
    t.equal(generation.finishReason, 'length');
    t.notOk('values' in generation);
  });
}

for (const program of PROGRAMS) {
  t.test(
    `cached turns in ${program} give the log-probabilities and values of a full forward pass`,
    async t => {
      const engine = engineWith({ program });
      const tokens: number[] = [];
      const positions: [number, number, number][] = [];
      for (let turn = 0; turn < 3; turn++) {
        const append = prompt(turn, 11 + turn);
        tokens.push(...append);
        const [generation] = await runAll(engine, [{ sequenceId: 7, append, sampling: sampled, seed: turn }]);
        generation.tokenIds.forEach((token, i) => {
          positions.push([tokens.length, generation.logProbs[i], generation.values![i]]);
          tokens.push(token);
        });
      }
      t.equal(engine.statistics.rows, tokens.length - 1, 'no token is computed twice');
      const full = await fullForward(parameters, tokens);
      for (const [position, logProb, value] of positions) {
        t.ok(Math.abs(logProb - full.logProb(position)) < 1e-4, `log-probability at ${position}`);
        t.ok(Math.abs(value - full.value(position)) < 1e-4, `value at ${position}`);
      }
    },
  );

  t.test(`a request’s tokens do not depend on the rest of the batch: ${program}`, async t => {
    const request = (n: number): GenerateRequest => ({
      sequenceId: n,
      append: prompt(n, 3 + ((n * 7) % 30)),
      sampling: n % 3 === 0 ? greedy : { ...sampled, topK: n % 4 === 0 ? 5 : 0, topP: n % 5 === 0 ? 0.8 : 1 },
      seed: n,
    });
    const numbers = Array.from({ length: 12 }, (_, n) => n);
    const together = await runAll(engineWith({ program }), numbers.map(request));
    const narrow = await runAll(engineWith({ program, maxRows: 8 }), numbers.toReversed().map(request));
    for (const n of numbers) {
      const [alone] = await runAll(engineWith({ program }), [request(n)]);
      t.strictSame(together[n], alone, `request ${n}, to the bit`);
      t.strictSame(narrow[numbers.length - 1 - n], alone, `request ${n} in chunks of 8 rows`);
    }
  });
}

for (const program of PROGRAMS) {
  t.test(`prefix caching prefills a common prefix once: ${program}`, async t => {
    const common = prompt(70, 45);
    const group = (ends: readonly number[]) =>
      ends.map(n => ({
        sequenceId: n,
        append: [...common, ...prompt(n, n % 3)],
        sampling: sampled,
        seed: n,
      }));
    const engine = engineWith({ program, maxRows: 32 });
    const first = await runAll(engine, group([0, 1, 2, 3, 4]));
    t.equal(engine.statistics.shared, 4 * 32, 'two full blocks of each of the others');
    engine.release(0);
    const later = await runAll(engine, group([5]));
    t.equal(engine.statistics.shared, 5 * 32, 'also of one that comes later, and the first is gone');
    const followUps = [1, 5].map(n => ({
      sequenceId: n,
      append: prompt(n, 9),
      sampling: sampled,
      seed: 50 + n,
    }));
    const second = await runAll(engine, followUps);
    for (const [n, generation] of [...first, ...later].entries()) {
      const alone = engineWith({ program });
      const [expected] = await runAll(alone, group([n]));
      t.strictSame(generation, expected, `sequence ${n}, to the bit`);
      const turn = [1, 5].indexOf(n);
      if (turn === -1) continue;
      t.strictSame(second[turn], (await runAll(alone, [followUps[turn]]))[0], `its second turn`);
    }
  });
}

t.test(
  'shared blocks are computed again under other weights, and not shared when they are stale',
  async t => {
    const common = prompt(70, 40);
    const of = (...ids: readonly number[]) =>
      ids.map(n => ({ sequenceId: n, append: [...common, n], sampling: sampled, seed: n }));
    for (const keepStaleCache of [false, true]) {
      const changed = randomWeights(config, 1);
      const engine = engineWith({ parameters: changed, maxOpenSequences: 3 });
      await runAll(engine, of(1, 2));
      for (const { name } of changed.layout) changed.array(name).set(randomWeights(config, 2).array(name));
      engine.weightsChanged(1, keepStaleCache);
      const { shared } = engine.statistics;
      const requests = keepStaleCache ? of(3) : [...of(3), { ...of(1)[0], append: [5] }];
      const [fresh] = await runAll(engine, requests);
      const [expected] = await runAll(engineWith({ parameters: changed }), of(3));
      t.strictSame(fresh.logProbs, expected.logProbs);
      t.equal(engine.statistics.shared - shared, keepStaleCache ? 0 : 32);
      await runAll(engine, of(4, 6));
      t.equal(engine.statistics.evictions, 2, 'room is found while blocks are shared');
    }
  },
);

t.test('a response ends at a stop string, wherever tokens part it', async t => {
  const decode = (ids: Int32Array) => [...ids].map(id => String.fromCharCode(97 + id).repeat(2)).join('');
  const engine = engineWith({ decode });
  const request = { sequenceId: 1, append: [3, 4], sampling: { ...sampled, maxNewTokens: 40 }, seed: 4 };
  const [free] = await runAll(engine, [request]);
  const text = decode(free.tokenIds);
  const stop = text.slice(21, 24);
  const [stopped] = await runAll(engine, [
    { ...request, sequenceId: 2, sampling: { ...request.sampling, stopStrings: ['never', stop] } },
  ]);
  t.equal(stopped.finishReason, 'stop');
  t.equal(decode(stopped.tokenIds), text.slice(0, Math.ceil((text.indexOf(stop) + 3) / 2) * 2));
  const refused = (stopStrings: readonly string[], from = engine) =>
    from.submit(
      { ...request, sequenceId: 3, sampling: { ...sampled, stopStrings } },
      () => {},
      () => {},
    );
  t.throws(() => refused(['a', '']), /stop string must not be empty/);
  t.throws(() => refused(['a'], engineWith()), /stop strings need a tokenizer/);
});

t.test('evicted sequences and changed weights are computed again', async t => {
  const requests = (turn: number, seed: number) =>
    Array.from({ length: 6 }, (_, n) => ({
      sequenceId: n,
      append: prompt(seed + n, 9),
      sampling: sampled,
      seed: turn * 10 + n,
    }));
  const roomy = engineWith();
  const tight = engineWith({ maxOpenSequences: 2 });
  for (const turn of [0, 1, 2]) {
    const [a, b] = [await runAll(roomy, requests(turn, turn)), await runAll(tight, requests(turn, turn))];
    a.forEach((generation, n) => {
      t.same(b[n].tokenIds, generation.tokenIds, `turn ${turn} of sequence ${n}`);
    });
  }
  t.equal(roomy.statistics.evictions, 0);
  t.ok(tight.statistics.evictions > 6);

  for (const program of PROGRAMS) {
    const changed = randomWeights(config, 1);
    const engine = engineWith({ program, parameters: changed });
    const first = prompt(50, 10);
    const [before] = await runAll(engine, [{ sequenceId: 1, append: first, sampling: sampled, seed: 1 }]);
    for (const { name } of changed.layout) changed.array(name).set(randomWeights(config, 2).array(name));
    engine.weightsChanged(1);
    const second = prompt(51, 5);
    const [after] = await runAll(engine, [{ sequenceId: 1, append: second, sampling: sampled, seed: 2 }]);
    t.same([...before.versions, ...after.versions], [...Array(8).fill(0), ...Array(8).fill(1)]);
    const full = await fullForward(changed, [...first, ...before.tokenIds, ...second, ...after.tokenIds]);
    after.logProbs.forEach((x, i) => {
      t.ok(Math.abs(x - full.logProb(first.length + 8 + second.length + i)) < 1e-4, `log-probability ${i}`);
    });
  }
});

t.test('generation continues from a stale cache where it is kept', async t => {
  for (const program of PROGRAMS) {
    const changed = randomWeights(config, 1);
    const engine = engineWith({ program, parameters: changed });
    await runAll(engine, [{ sequenceId: 1, append: prompt(50, 10), sampling: sampled, seed: 1 }]);
    const rows = engine.statistics.rows;
    for (const { name } of changed.layout) changed.array(name).set(randomWeights(config, 2).array(name));
    engine.weightsChanged(1, true);
    const [after] = await runAll(engine, [
      { sequenceId: 1, append: prompt(51, 5), sampling: sampled, seed: 2 },
    ]);
    t.same([...after.versions], Array(8).fill(1));
    t.equal(engine.statistics.rows - rows, 1 + 5 + 7, 'nothing is computed again');
  }
});

t.test('sampling ends at stop tokens, limits and the end of the context', async t => {
  const engine = engineWith({ maxSequenceLength: 20 });
  const every = Array.from({ length: config.vocabularySize }, (_, id) => id);
  const [stopped, long] = await runAll(engine, [
    { sequenceId: 1, append: [3, 4], sampling: { ...sampled, stopTokenIds: every }, seed: 1 },
    { sequenceId: 2, append: prompt(3, 15), sampling: sampled, seed: 1 },
  ]);
  t.equal(stopped.finishReason, 'stop');
  t.equal(stopped.tokenIds.length, 1);
  t.equal(long.finishReason, 'context');
  t.equal(long.tokenIds.length, 5);
  const [full] = await runAll(engine, [{ sequenceId: 2, append: [1], sampling: sampled, seed: 1 }]);
  t.equal(full.finishReason, 'context');
  t.equal(full.tokenIds.length, 0);
});

t.test('a grammar decides which tokens can be sampled and when a response is over', async t => {
  const grammar = {
    start: 0,
    states: [
      { tokens: [3], next: [1] },
      { tokens: [5, 6, 7], next: [1, 1, 2] },
      { tokens: [], next: [] },
    ],
  };
  const grammars = new Map([['answer', compileGrammar('answer', grammar, config.vocabularySize)]]);
  const engine = engineWith({ grammars });
  const requests = Array.from({ length: 10 }, (_, n) => ({
    sequenceId: n,
    append: prompt(n, 6),
    sampling: { ...sampled, maxNewTokens: 30 },
    seed: n,
    grammar: 'answer',
  }));
  for (const { tokenIds, logProbs, finishReason } of await runAll(engine, requests)) {
    t.match([...tokenIds].join(' '), /^3( 5| 6)* 7$/);
    t.equal(logProbs[0], 0, 'a forced token has probability 1');
    t.equal(finishReason, 'stop');
  }
  t.throws(
    () =>
      engine.submit(
        { ...requests[0], sequenceId: 99, grammar: 'other' },
        () => {},
        () => {},
      ),
    /no grammar is named other; the policy was given: answer/,
  );
});

t.test('malformed requests are refused and released sequences fail their request', async t => {
  const engine = engineWith();
  const submit = (request: Partial<GenerateRequest>) =>
    engine.submit(
      { sequenceId: 1, append: [1], sampling: sampled, seed: 0, ...request },
      () => {},
      () => {},
    );
  t.throws(() => submit({ append: [] }), /sequence 1 is empty/);
  t.throws(() => submit({ append: [20] }), /token id 20 at 0 of append is outside the vocabulary of 20/);
  t.throws(() => submit({ sampling: { ...sampled, topP: 0 } }), /topP must be above 0/);
  t.throws(() => submit({ seed: -1 }), /seed must be an integer/);
  submit({});
  t.throws(() => submit({}), /being continued already/);
  const failure = new Promise((_, reject) =>
    engine.submit({ sequenceId: 2, append: [1], sampling: sampled, seed: 0 }, () => {}, reject),
  );
  engine.release(2);
  await t.rejects(failure, /sequence 2 was released while it was being continued/);
  engine.release(3);
});

t.test('weights that give NaN fail the request, not the engine', async t => {
  const broken = randomWeights(config, 1);
  const engine = engineWith({ parameters: broken });
  const request = { sequenceId: 1, append: [1, 2], sampling: sampled, seed: 0 };
  broken.array('model.norm.weight').fill(NaN);
  await t.rejects(runAll(engine, [request]), /logits are NaN/);
  t.notOk(engine.busy);
});

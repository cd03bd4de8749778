import t from 'tap';
import { LocalPolicy } from '../../policy/local-policy.ts';
import { goldenFolder } from '../../serve/serve.test-data.ts';
import type { GenerateRequest, Generation, SamplingSettings } from '../generation.ts';
import type { EngineClient } from './engine-client.ts';
import { sglangEngine, vllmEngine, wholeVllmEngine } from './engines.test-data.ts';
import { SglangEngine, VllmEngine } from './engines.ts';
import { RemoteGenerator, type RemoteGeneratorOptions } from './remote-generator.ts';
import { EnginesAwayError } from './replica-pool.ts';

const ADAPTER = goldenFolder('qwen2-tiny/lora');
const TIMEOUT_MS = 30_000;
/** For engines that hang. */
const SHORT_TIMEOUT_MS = 1_000;

/** Changes of the requests, in turn. */
const CHANGES: readonly Partial<SamplingSettings>[] = [
  {},
  { topK: 40, topP: 0.9, minP: 0.05 },
  { repetitionPenalty: 1.6, presencePenalty: 0.4 },
  { frequencyPenalty: 1.5, logitBias: { 7: 4, 9: -100 } },
];

const request = (
  sequenceId: number,
  append: readonly number[] = [3, 4, 5, sequenceId + 6],
): GenerateRequest => ({
  sequenceId,
  append,
  sampling: {
    temperature: 0.8,
    topK: 0,
    topP: 1,
    maxNewTokens: 12,
    stopTokenIds: [],
    ...CHANGES[sequenceId % CHANGES.length],
  },
  seed: 40 + sequenceId,
});

const vllm = (url: string, timeoutMs = TIMEOUT_MS) => new VllmEngine({ url, timeoutMs }, true);
const sglang = (url: string, timeoutMs = TIMEOUT_MS) => new SglangEngine({ url, timeoutMs }, true);

function generatorOf(
  t: { teardown(work: () => Promise<void>): void },
  engines: readonly EngineClient[],
  options: Partial<RemoteGeneratorOptions> = {},
): RemoteGenerator {
  const generator = new RemoteGenerator({
    engines,
    maxSequenceLength: 128,
    vocabularySize: 512,
    grammars: {},
    patienceMs: 600_000,
    olderVersions: 1,
    note: () => {},
    ...options,
  });
  t.teardown(() => generator.close());
  return generator;
}

/** Responses of the policy with its adapter in this process. */
async function here(requests: readonly GenerateRequest[]): Promise<Generation[]> {
  const policy = await LocalPolicy.create({
    model: ADAPTER,
    base: goldenFolder('qwen2-tiny'),
    seed: 0,
    workers: 1,
    valueHead: false,
    generationOnly: true,
    maxSequenceLength: 128,
  });
  try {
    return await Promise.all(requests.map(one => policy.generate(one)));
  } finally {
    await policy.close();
  }
}

const REQUESTS = Array.from({ length: 8 }, (_, i) => request(i));
const expected = await here(REQUESTS);
const parts = ({ tokenIds, logProbs, finishReason }: Generation) => ({
  tokenIds: [...tokenIds],
  logProbs: [...logProbs],
  finishReason,
});

for (const [name, open, client] of [
  ['vLLM', vllmEngine, vllm],
  ['SGLang', sglangEngine, sglang],
] as const) {
  t.test(`${name}: tokens and log-probabilities are those of the adapter, sampled here`, async t => {
    const engines = [await open(t), await open(t)];
    const generator = generatorOf(
      t,
      engines.map(({ url }) => client(url)),
    );
    await generator.probe();
    await generator.publish(7, 'run-v7', ADAPTER);
    const generations = await Promise.all(REQUESTS.map(one => generator.generate(one)));
    t.same(generations.map(parts), expected.map(parts));
    t.ok(generations.every(({ versions }) => versions.every(version => version === 7)));
    const metrics = generator.takeMetrics();
    t.equal(metrics['generation/engine_0/requests'], 4, 'the engines share the work');
    t.equal(metrics['generation/engine_1/requests'], 4);
    t.equal(metrics['generation/retries'], 0);
    t.equal(metrics['generation/engine_0/versions'], 1);
    t.ok(metrics['generation/engine_0/tokens_per_s'] > 0);
    t.equal(metrics['generation/token_share_0'], 1);
    await generator.publish(8, 'run-v8', ADAPTER);
    t.match(generator.takeMetrics(), {
      'generation/engine_0/versions': 2,
      'generation/engine_0/tokens_per_s': 0,
      'generation/token_share_0': 0,
    });
    await generator.generate(REQUESTS[0]);
    await generator.publish(9, 'run-v9', ADAPTER);
    t.match(
      generator.takeMetrics(),
      { 'generation/token_share_0': 1, 'generation/token_share_1': 0 },
      'tokens count for the version that was the newest when they came',
    );
  });

  t.test(`${name}: a folder that shows late is requested again`, async t => {
    const engine = await open(t, { lateFolders: 2 });
    const generator = generatorOf(t, [client(engine.url)]);
    await generator.publish(1, 'run-v1', ADAPTER);
    t.same(parts(await generator.generate(REQUESTS[0])), parts(expected[0]));
  });

  t.test(`${name}: an engine that fails, hangs or answers badly is left for another`, async t => {
    for (const fault of [{ failures: 100 }, { hangs: true }, { short: true }]) {
      const [bad, good] = [await open(t, fault), await open(t)];
      const notes: string[] = [];
      const generator = generatorOf(t, [client(bad.url, SHORT_TIMEOUT_MS), client(good.url)], {
        note: text => notes.push(text),
      });
      await generator.publish(1, 'run-v1', ADAPTER);
      const generations = await Promise.all(REQUESTS.map(one => generator.generate(one)));
      t.same(generations.map(parts), expected.map(parts), JSON.stringify(fault));
      t.ok(notes.length > 0);
      t.ok(generator.takeMetrics()['generation/engine_0/failures'] > 0);
    }
  });

  t.test(`${name}: old versions are unloaded everywhere`, async t => {
    const engines = [await open(t), await open(t)];
    const generator = generatorOf(
      t,
      engines.map(({ url }) => client(url)),
    );
    for (let version = 1; version <= 5; version++)
      await generator.publish(version, `run-v${version}`, ADAPTER);
    for (const { models } of engines) {
      t.same(
        models.all.map(model => model.name),
        ['base', 'run-v4', 'run-v5'],
      );
    }
    t.same(generator.takeOldFolders().length, 3);
  });
}

t.test('a request that is full elsewhere waits and counts as no failure', async t => {
  const engine = await vllmEngine(t, { failures: 1, status: 429 });
  const generator = generatorOf(t, [vllm(engine.url)]);
  await generator.publish(1, 'v1', ADAPTER);
  t.same(parts(await generator.generate(REQUESTS[0])), parts(expected[0]));
  const metrics = generator.takeMetrics();
  t.equal(metrics['generation/engine_0/busy'], 1);
  t.equal(metrics['generation/engine_0/failures'], 0);
});

t.test('a conversation continues with the tokens that were sampled', async t => {
  const engine = await vllmEngine(t);
  const generator = generatorOf(t, [vllm(engine.url)]);
  await generator.publish(1, 'v1', ADAPTER);
  const first = await generator.generate(REQUESTS[0]);
  await generator.generate({ ...REQUESTS[0], append: [9, 9] });
  const prompt = engine.bodies.at(-1)!.body.prompt;
  t.same(prompt, [...(REQUESTS[0].append as number[]), ...first.tokenIds, 9, 9]);
  generator.release(0);
  await generator.generate({ ...REQUESTS[0], append: [9] });
  t.same(engine.bodies.at(-1)!.body.prompt, [9], 'a sequence that was released begins again');
});

t.test('a response ends where the context does', async t => {
  const engine = await vllmEngine(t);
  const generator = generatorOf(t, [vllm(engine.url)], { maxSequenceLength: 8 });
  await generator.publish(1, 'v1', ADAPTER);
  const { tokenIds, finishReason } = await generator.generate(request(0, [3, 4, 5]));
  t.equal(tokenIds.length, 5);
  t.equal(finishReason, 'context');
  t.equal((await generator.generate(request(0, [1]))).tokenIds.length, 0);
});

t.test('a run ends with a clear error when all engines are away for too long', async t => {
  const engine = await vllmEngine(t);
  const generator = generatorOf(t, [vllm(engine.url)], { patienceMs: 300 });
  await generator.publish(1, 'v1', ADAPTER);
  engine.faults.failures = 1000;
  await t.rejects(generator.generate(REQUESTS[0]), EnginesAwayError);
  await t.rejects(
    generatorOf(t, [vllm('http://127.0.0.1:1')]).probe(),
    /no engine answers: http:\/\/127.0.0.1:1\/v1\/models: no reply/,
  );
});

t.test('whole models take the place of the last on SGLang', async t => {
  const engine = await sglangEngine(t, { lateFolders: 1 });
  const client = new SglangEngine({ url: engine.url, timeoutMs: TIMEOUT_MS }, false);
  const generator = generatorOf(t, [client]);
  await generator.publish(1, 'v1', goldenFolder('qwen2-tiny'));
  const under = generator.generate(REQUESTS[0]);
  await generator.publish(2, 'v2', goldenFolder('qwen2-tiny'));
  t.same([...(await under).versions], Array(12).fill(1), 'a request in progress ends under its version');
  t.same([...(await generator.generate(REQUESTS[1])).versions], Array(12).fill(2));
});

t.test('whole models take the place of the last on vLLM in the middle of a response', async t => {
  const engine = await wholeVllmEngine(t);
  const generator = generatorOf(t, [new VllmEngine({ url: engine.url, timeoutMs: TIMEOUT_MS }, false)]);
  await generator.probe();
  await generator.publish(1, 'v1', goldenFolder('qwen2-tiny'));
  const under = generator.generate(REQUESTS[0]);
  await new Promise(resolve => setTimeout(resolve, 60));
  const from = engine.bodies.length;
  await generator.publish(2, 'v2', goldenFolder('qwen2-tiny'));
  t.same(
    engine.bodies.slice(from).map(({ path }) => path),
    [
      '/pause?mode=keep',
      '/collective_rpc',
      '/reset_prefix_cache?reset_running_requests=true',
      '/update_weight_version',
      '/resume',
    ],
    'the weights, the cache and their name change while no token is computed',
  );
  const { versions, tokenIds } = await under;
  t.equal(tokenIds.length, 12);
  t.same([...new Set(versions)], [1, 2], 'each token has the version that sampled it');
  t.same([...(await generator.generate(REQUESTS[1])).versions], Array(12).fill(2));
  const { 'generation/token_share_0': newest, 'generation/token_share_1': before } = generator.takeMetrics();
  t.ok(newest > 0.5 && before > 0 && Math.abs(newest + before - 1) < 1e-9, `${newest} and ${before}`);
});

t.test('an engine that was started again takes whole weights before its tokens count', async t => {
  const engine = await wholeVllmEngine(t);
  const generator = generatorOf(t, [new VllmEngine({ url: engine.url, timeoutMs: TIMEOUT_MS }, false)]);
  await generator.publish(1, 'v1', goldenFolder('qwen2-tiny'));
  engine.restart();
  t.same([...(await generator.generate(REQUESTS[0])).versions], Array(12).fill(1));
  t.equal(engine.bodies.filter(({ path }) => path === '/collective_rpc').length, 2);
});

t.test('requests that a failed load of whole weights breaks off are asked again', async t => {
  const engine = await wholeVllmEngine(t);
  const generator = generatorOf(t, [new VllmEngine({ url: engine.url, timeoutMs: TIMEOUT_MS }, false)]);
  await generator.publish(1, 'v1', goldenFolder('qwen2-tiny'));
  const under = generator.generate(REQUESTS[0]);
  await new Promise(resolve => setTimeout(resolve, 60));
  engine.faults.lateFolders = 1;
  await generator.publish(2, 'v2', goldenFolder('qwen2-tiny'));
  t.same([...(await under).versions], Array(12).fill(2), 'wholly under the newest weights');

  const closed = await wholeVllmEngine(t, { takesNoWeights: true });
  const refused = generatorOf(t, [new VllmEngine({ url: closed.url, timeoutMs: TIMEOUT_MS }, false)]);
  await t.rejects(refused.probe(), /Not Found: .*VLLM_SERVER_DEV_MODE=1 and --enable-scale-out/);
});

t.test('versions by token must cover a response in order, however large they claim to be', async t => {
  const engine = await vllmEngine(t);
  const client = new VllmEngine({ url: engine.url, timeoutMs: TIMEOUT_MS }, true);
  const generate = client.generate.bind(client);
  const spans = [
    [{ version: 'v1', start: -1e9, end: 12 }],
    [{ version: 'v1', start: 0, end: 1e9 }],
    [{ version: 'v1', start: 0, end: 11 }],
    [{ version: 'other', start: 0, end: 12 }],
  ];
  client.generate = async (call, signal) => {
    const weights = spans.shift();
    return { ...(await generate(call, signal)), ...(weights === undefined ? {} : { weights }) };
  };
  const generator = generatorOf(t, [client]);
  await generator.publish(1, 'v1', ADAPTER);
  t.same([...(await generator.generate(REQUESTS[0])).versions], Array(12).fill(1));
  t.equal(generator.takeMetrics()['generation/retries'], 4);
});

t.test('an engine that lacks token ids is reported at the start', async t => {
  const { default: Fastify } = await import('fastify');
  const app = Fastify();
  app.get('/v1/models', async () => ({ data: [{ id: 'old' }] }));
  app.post('/v1/completions', async () => ({ choices: [{ text: 'a', finish_reason: 'length' }] }));
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  t.teardown(() => app.close());
  await t.rejects(generatorOf(t, [vllm(url)]).probe(), /must know return_token_ids/);
});

for (const [name, open, client, path] of [
  ['vLLM', vllmEngine, vllm, '/v1/load_lora_adapter'],
  ['SGLang', sglangEngine, sglang, '/load_lora_adapter'],
] as const) {
  t.test(`${name}: a restarted engine takes the newest version before it is asked again`, async t => {
    const engine = await open(t);
    const generator = generatorOf(t, [client(engine.url)]);
    await generator.publish(1, 'v1', ADAPTER);
    await engine.models.unload('v1');
    t.same(parts(await generator.generate(REQUESTS[0])), parts(expected[0]));
    t.same(
      engine.bodies.filter(request => request.path === path).map(({ body }) => body.lora_name),
      ['v1', 'v1'],
    );
  });
}

t.test('a response that SGLang breaks off is requested again', async t => {
  const engine = await sglangEngine(t, { aborts: 2 });
  const generator = generatorOf(t, [sglang(engine.url)]);
  await generator.publish(1, 'v1', ADAPTER);
  t.same(parts(await generator.generate(REQUESTS[0])), parts(expected[0]));
  t.equal(generator.takeMetrics()['generation/retries'], 2);
});

t.test('SGLang that was started again takes whole weights before its tokens count', async t => {
  const engine = await sglangEngine(t);
  const generator = generatorOf(t, [new SglangEngine({ url: engine.url, timeoutMs: TIMEOUT_MS }, false)]);
  await generator.publish(1, 'v1', goldenFolder('qwen2-tiny'));
  engine.restart();
  t.same([...(await generator.generate(REQUESTS[0])).versions], Array(12).fill(1));
  t.equal(engine.bodies.filter(({ path }) => path === '/update_weights_from_disk').length, 2);
});

t.test('defaults of the model on the engine change nothing of what is sampled', async t => {
  const generationConfig = {
    top_k: 20,
    top_p: 0.8,
    min_p: 0.1,
    repetition_penalty: 1.1,
    presence_penalty: 1,
  };
  const engine = await vllmEngine(t, { generationConfig });
  const generator = generatorOf(t, [vllm(engine.url)]);
  await generator.publish(1, 'v1', ADAPTER);
  const generations = await Promise.all(REQUESTS.map(one => generator.generate(one)));
  t.same(generations.map(parts), expected.map(parts));
});

t.test('an engine that refuses the weights ends the run at once, with its words', async t => {
  for (const [open, client, faults, message] of [
    [
      vllmEngine,
      vllm,
      { refusesRank: true },
      /load_lora_adapter: status 500: .*LoRA rank 64 is greater than max_lora_rank 16/,
    ],
    [
      vllmEngine,
      vllm,
      { takesNoAdapters: true },
      /status 404: Not Found: .*--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True/,
    ],
    [sglangEngine, sglang, { refusesRank: true }, /status 400: LoRA adapter v1 with rank 64 is incompatible/],
    [sglangEngine, sglang, { takesNoAdapters: true }, /status 400: LoRA is not enabled.*--enable-lora/],
  ] as const) {
    const [bad, good] = [await open(t, faults), await open(t)];
    for (const engines of [[bad], [good, bad]]) {
      const generator = generatorOf(
        t,
        engines.map(({ url }) => client(url)),
      );
      const began = performance.now();
      await t.rejects(generator.publish(1, 'v1', ADAPTER), { name: 'EngineError', message });
      t.ok(performance.now() - began < 5000, 'long before generation.patience_s');
    }
  }
  const short = await vllmEngine(t, { failures: 1, status: 400 });
  const generator = generatorOf(t, [vllm(short.url)]);
  await generator.publish(1, 'v1', ADAPTER);
  await t.rejects(generator.generate(REQUESTS[0]), { name: 'EngineError', message: /status 400/ });
});

t.test('versions that an engine lost when it was started again are not kept in mind', async t => {
  const engine = await vllmEngine(t);
  const generator = generatorOf(t, [vllm(engine.url)]);
  for (const version of [1, 2]) await generator.publish(version, `v${version}`, ADAPTER);
  await engine.models.unload('v1');
  const unloads = () => engine.bodies.filter(({ path }) => path === '/v1/unload_lora_adapter');
  await generator.publish(3, 'v3', ADAPTER);
  await generator.publish(4, 'v4', ADAPTER);
  t.same(
    unloads().map(({ body }) => body.lora_name),
    ['v1', 'v2'],
    'each is unloaded once',
  );
  t.equal(generator.takeMetrics()['generation/engine_0/versions'], 2);
});

import t from 'tap';
import { serveHttp } from '../../../test/local-server.test-data.ts';
import { ADMIN, goldenFolder, startServer } from '../../serve/serve.test-data.ts';
import { WebGpuRuntime } from '../../tensor/runtime/webgpu/webgpu-runtime.ts';
import type { EngineCall, EngineError } from './engine-client.ts';
import { RagenEngine } from './ragen-engine.ts';
import { RemoteGenerator } from './remote-generator.ts';

const TIMEOUT_MS = 30_000;
const GPU_MS = 300_000;
const found = await WebGpuRuntime.open();
const hasGpu = found !== null;
await found?.close();
const grammar = {
  start: 0,
  states: [
    { tokens: [5, 6], next: [0, 1] },
    { tokens: [], next: [] },
  ],
};
const call = (seed: number, more: Partial<EngineCall> = {}): EngineCall => ({
  promptIds: [3, 4, 5, seed + 6],
  sampling: { temperature: 0.8, topK: 0, topP: 1, maxNewTokens: 10, stopTokenIds: [7] },
  seed,
  weights: null,
  ...more,
});
const { signal } = new AbortController();

t.test('calls of one turn are sampled as each alone, in one request', async t => {
  const { url, models, request } = await startServer(t, goldenFolder('qwen2-tiny'), {
    policy: { workers: 1 },
  });
  const engine = new RagenEngine({ url, timeoutMs: TIMEOUT_MS });
  t.teardown(() => engine.close());
  const calls = Array.from({ length: 40 }, (_, i) => call(i, i % 3 === 0 ? { grammar } : {}));
  const replies = await Promise.all(calls.map(one => engine.generate(one, signal)));
  for (const [i, { tokenIds, logProbs, finishReason }] of replies.entries()) {
    const { weights: _, ...alone } = calls[i];
    const expected = await models.base.generate(alone, signal);
    t.same(tokenIds, [...expected.tokenIds]);
    t.same(Float32Array.from(logProbs), expected.logProbs);
    t.equal(finishReason, expected.finishReason === 'stop' ? 'stop' : 'length');
  }
  const metrics = (await request('GET', '/metrics')).body as string;
  t.match(metrics, /ragen_serve_requests_total\{[^}]*outcome="finished"[^}]*\} 40\b/);
});

t.test(
  'an engine on a GPU samples as one on the processor',
  { skip: !hasGpu && 'no GPU here that Dawn can use' },
  async t => {
    const replies = [];
    for (const runtime of ['webgpu', 'onnx'] as const) {
      const { url } = await startServer(t, goldenFolder('qwen2-tiny'), { policy: { workers: 1, runtime } });
      const engine = new RagenEngine({ url, token: ADMIN, timeoutMs: GPU_MS });
      t.teardown(() => engine.close());
      await engine.load('a', goldenFolder('qwen2-tiny/lora'), signal);
      const calls = Array.from({ length: 6 }, (_, i) =>
        call(i, i % 2 === 0 ? {} : { weights: 'a', grammar }),
      );
      replies.push(await Promise.all(calls.map(one => engine.generate(one, signal))));
    }
    const [gpu, processor] = replies;
    for (const [i, { tokenIds, logProbs }] of gpu.entries()) {
      t.same(tokenIds, processor[i].tokenIds);
      const gap = Math.max(...logProbs.map((logProb, j) => Math.abs(logProb - processor[i].logProbs[j])));
      t.ok(gap < 1e-4, `${gap}`);
    }
  },
);

t.test('a call that is refused or given up leaves the others of its request alone', async t => {
  const { url } = await startServer(t, goldenFolder('qwen2-tiny'), { policy: { workers: 1 } });
  const engine = new RagenEngine({ url, timeoutMs: TIMEOUT_MS });
  t.teardown(() => engine.close());
  const gone = new AbortController();
  const given = engine.generate(call(1), gone.signal);
  const refused = engine.generate(call(2, { promptIds: [9_999] }), signal);
  const unknown = engine.generate(call(2, { weights: 'nobody' }), signal);
  const fine = engine.generate(call(3), signal);
  gone.abort(new Error('released'));
  await t.rejects(given, /released/);
  await t.rejects(refused, { message: /token id 9999 is outside the vocabulary/, passing: false });
  await t.rejects(unknown, { message: /status 404: .*nobody/, passing: true });
  t.ok((await fine).tokenIds.length > 0);
});

t.test('calls beyond the capacity of an engine wait and are asked again', async t => {
  const { url } = await startServer(t, goldenFolder('qwen2-tiny'), {
    policy: { workers: 1, maxSequenceLength: 128 },
    maxStreams: 4,
  });
  const generator = new RemoteGenerator({
    engines: [new RagenEngine({ url, timeoutMs: TIMEOUT_MS, token: ADMIN })],
    maxSequenceLength: 128,
    vocabularySize: 512,
    grammars: {},
    patienceMs: TIMEOUT_MS,
    olderVersions: 1,
    note: () => {},
  });
  t.teardown(() => generator.close());
  await generator.publish(1, 'v1', goldenFolder('qwen2-tiny/lora'));
  const replies = await Promise.all(
    Array.from({ length: 8 }, (_, sequenceId) => {
      const { sampling, seed, promptIds } = call(sequenceId);
      return generator.generate({ sequenceId, append: promptIds, sampling, seed });
    }),
  );
  t.ok(replies.every(({ tokenIds }) => tokenIds.length > 0));
  t.ok(generator.takeMetrics()['generation/engine_0/busy'] > 0);
});

t.test('an engine that dies during requests fails only the calls without a response', async t => {
  const line = { index: 1, token_ids: [4, 5], logprobs: [-1, -2], finish_reason: 'stop' };
  const { url } = await serveHttp(t, (_request, response) =>
    response.writeHead(200).write(`${JSON.stringify(line)}\n{"index":`, () => response.destroy()),
  );
  const engine = new RagenEngine({ url, timeoutMs: TIMEOUT_MS });
  t.teardown(() => engine.close());
  const [lost, kept] = await Promise.allSettled([
    engine.generate(call(1), signal),
    engine.generate(call(2), signal),
  ]);
  t.match(kept, { status: 'fulfilled', value: { tokenIds: [4, 5], finishReason: 'stop' } });
  t.equal(lost.status, 'rejected');
  t.equal(((lost as PromiseRejectedResult).reason as EngineError).passing, true);
});

import { promisify } from 'node:util';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompress } from 'node:zlib';
import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from '../../algorithms/losses/settings.ts';
import { LocalPolicy } from '../../policy/local-policy.ts';
import { encodeForwardBackwardRequest } from '../../tinker/proto.ts';
import { ownerOf } from './routes.ts';
import {
  type Datums,
  FOLDER,
  floats,
  ids,
  lesson,
  startTinker,
  WireClient,
  type WireModel,
} from './tinker.test-data.ts';

const GAP_MS = 3_000;
const tinker = await startTinker(t, { gapMs: GAP_MS, pollMs: 100, maxModels: 8 });
const { client, server } = tinker;
t.afterEach(() => client.finishAll());
t.setTimeout(900_000);
const base = server.name;
const MIB = 2 ** 20;
const compress = promisify(zstdCompress);
/** With an epsilon this large a step of Adam moves the weights by a tenth of the gradient. */
const LINEAR = { learning_rate: 1e5, beta1: 0, beta2: 0, eps: 1e6, weight_decay: 0, grad_clip_norm: 0 };
const OWN_LINEAR = { learningRate: 1e5, beta1: 0, beta2: 0, epsilon: 1e6, weightDecay: 0, clipNorm: 0 };

/** Weights of a model on the server. */
async function weightsOf({ id, client: { key } }: Pick<WireModel, 'id' | 'client'>): Promise<Float32Array> {
  const { model } = server.model(id, ownerOf({ headers: { 'x-api-key': key } }));
  return (await (await model.policy).copyWeights()).flat;
}

/** ‖a − b‖ / ‖b − from‖. */
function relative(a: Float32Array, b: Float32Array, from: Float32Array): number {
  const norm = (x: Float32Array, y: Float32Array) => Math.hypot(...x.map((value, i) => value - y[i]));
  return norm(a, b) / norm(b, from);
}

/** Episodes of a prompt and a response, with made-up advantages and log-probabilities near those of the model. */
async function episodes(policy: LocalPolicy, prompt: number) {
  const rng = Random.fromSeed(5);
  const sequences = [7, 4, 11].map(length => {
    const tokenIds = Int32Array.from({ length }, () => rng.integer(400));
    return { tokenIds, lossMask: Uint8Array.from({ length }, (_, t) => (t >= prompt ? 1 : 0)) };
  });
  const scores = await policy.score(sequences);
  return sequences.map((sequence, i) => ({
    ...sequence,
    logProbs: scores[i].logProbs.map(x => x + 0.3 * rng.normal()),
    advantages:
      sequence.tokenIds.length === 4
        ? new Float32Array(4).fill(-1)
        : Float32Array.from(sequence.tokenIds, () => rng.normal()),
  }));
}

const LOSSES: readonly (readonly [string, Record<string, number>, Partial<LossSettings>])[] = [
  ['cross_entropy', {}, { policy: 'cross_entropy' }],
  ['importance_sampling', {}, { policy: 'ppo', clipLow: 1 - 1e-9, clipHigh: 1e9 }],
  [
    'ppo',
    { clip_low_threshold: 0.9, clip_high_threshold: 1.15 },
    { policy: 'ppo', clipLow: 0.1, clipHigh: 0.15 },
  ],
  [
    'cispo',
    { clip_low_threshold: 0, clip_high_threshold: 1.1 },
    { policy: 'cispo', clipLow: 1, clipHigh: 0.1 },
  ],
  ['dro', { beta: 0.2 }, { policy: 'dro', dro: { beta: 0.2 } }],
];

t.test(
  'each loss has the gradient and the value of the trainer, in chunks that come in any order',
  async t => {
    const lora = server.loraOf({ rank: 4 });
    for (const [lossFn, lossConfig, own] of LOSSES) {
      const model = await client.model(base, 3);
      const policy = await LocalPolicy.create({ model: FOLDER, lora, seed: 3, workers: 1, valueHead: false });
      // The penalty of dro has no weights: it is on every token.
      const batch = await episodes(policy, lossFn === 'dro' ? 1 : 3);
      const tokens = batch.reduce((sum, { lossMask }) => sum + lossMask.filter(Boolean).length, 0);
      const data: Datums = batch.map(({ tokenIds, lossMask, logProbs, advantages }) => {
        const mean = (values: ArrayLike<number>) =>
          floats(...Array.from(tokenIds.subarray(1), (_, t) => (values[t + 1] * lossMask[t + 1]) / tokens));
        return {
          tokens: tokenIds.slice(0, -1),
          inputs: new Map([
            // What does not train can have any target.
            [
              'target_tokens',
              ids(...Array.from(tokenIds.subarray(1), (id, t) => (lossMask[t + 1] ? id : 0))),
            ],
            ...(lossFn === 'cross_entropy'
              ? [['weights', mean(lossMask)] as const]
              : [
                  ['logprobs', floats(...logProbs.subarray(1))] as const,
                  ['advantages', mean(advantages)] as const,
                ]),
          ]),
        };
      });
      const loss = { ...DEFAULT_LOSS_SETTINGS, dualClip: 0, entropyCoefficient: 0, ...own };
      for (let round = 0; round < 2; round++) {
        const before = await weightsOf(model);
        const first = model.next;
        model.next += data.length;
        const parts = [1, 2, 0].map(async i => ({
          i,
          output: await model.forwardBackward([data[i]], {
            seqId: first + i,
            lossFn,
            lossConfig: lossFn === 'dro' ? { beta: lossConfig.beta / tokens } : lossConfig,
          }),
        }));
        const found = await Promise.all(parts);
        const metrics = await policy.update(
          { sequences: batch },
          { loss, optimizer: OWN_LINEAR, temperature: 1 },
        );
        const value = found.reduce((sum, { output }) => sum + output.metrics['loss:sum'], 0);
        const expected = metrics['actor/pg_loss'] ?? metrics['sft/loss'];
        t.ok(Math.abs(value - expected) < 1e-5 * Math.max(1, Math.abs(expected)), `${lossFn}: loss ${value}`);
        const step = await model.step(LINEAR);
        t.ok(
          Math.abs(step.metrics['optim/grad_norm'] / metrics['actor/grad_norm'] - 1) < 1e-5,
          `${lossFn}: norm`,
        );
        const [server, own] = [await weightsOf(model), (await policy.copyWeights()).flat];
        const difference = relative(server, own, before);
        t.ok(difference < 1e-5, `${lossFn}, step ${round + 1}: relative difference ${difference}`);
      }
      await client.post('unload_model', { model_id: model.id });
      await policy.close();
    }
  },
);

t.test('a repeated submission is applied once', async t => {
  const model = await client.model(base);
  const [one, again] = [await model.submit(lesson()), await model.submit(lesson(), { seqId: 1 })];
  t.equal(again.body.request_id, one.body.request_id);
  await client.result(one);
  const late = await model.submit(lesson(), { seqId: 1 });
  t.equal(late.body.request_id, one.body.request_id, 'also when it has run');
  const other = await model.submit(lesson(2), { seqId: 1 });
  t.equal(other.status, 400);
  t.match(other.body.detail, /seq_id 1 was used for another request/);
  const adam = { model_id: model.id, seq_id: 2, adam_params: LINEAR };
  const steps = await Promise.all([1, 2, 3].map(() => client.post('optim_step', adam)));
  t.equal(new Set(steps.map(({ body }) => body.request_id)).size, 1);
  const { metrics } = await client.result(steps[0]);
  const twin = await client.model(base);
  await twin.forwardBackward(lesson());
  t.equal((await twin.step(LINEAR)).metrics['optim/grad_norm'], metrics['optim/grad_norm']);
  t.same(await weightsOf(model), await weightsOf(twin), 'one gradient, one step');
});

t.test('an invalid request is rejected by name, and the step that lacks it is not taken', async t => {
  const model = await client.model(base);
  const before = await weightsOf(model);
  const one = (more: Record<string, ReturnType<typeof floats>>, tokens = [5, 9]): Datums => [
    {
      tokens: Int32Array.from(tokens),
      inputs: new Map(Object.entries({ target_tokens: ids(9, 17), weights: floats(1, 1), ...more })),
    },
  ];
  const cases: readonly [Datums, Parameters<WireModel['submit']>[1], RegExp][] = [
    [
      one({ weights: floats(1, NaN) }),
      {},
      /^data\[0\]\.loss_fn_inputs\.weights\[1\] is NaN; it must be finite$/,
    ],
    [one({ weights: floats(1) }), {}, /weights has shape \[1\]; send \[2\], one for each input token/],
    [one({ target_tokens: ids(9, 17, 3) }), {}, /target_tokens has shape \[3\]/],
    [
      one({ target_tokens: { values: Int32Array.of(1, 2), shape: [1, 2] } }),
      {},
      /target_tokens has shape \[1, 2\]/,
    ],
    [one({ target_tokens: ids(9, 512) }), {}, /target_tokens has token 512; the vocabulary has 512/],
    [one({}, [5, -1]), {}, /model_input has token -1/],
    [one({}, []), {}, /model_input has 0 tokens; it must have 1 to 1023/],
    [
      one({ mask: floats(1, 1) }),
      {},
      /loss_fn_inputs\.mask is not an input of this loss: it takes target_tokens, weights/,
    ],
    [
      one({}),
      { lossFn: 'ppo' },
      /weights is not an input of this loss: it takes target_tokens, logprobs, advantages/,
    ],
    [
      one({}),
      { lossFn: 'gspo' },
      /loss_fn "gspo" is not supported; choose cross_entropy, importance_sampling, ppo/,
    ],
    [one({}), { lossFn: '__proto__' }, /loss_fn "__proto__" is not supported/],
    [
      one({}),
      { lossConfig: { beta: 1 } },
      /loss_fn_config.beta 1 is not supported: cross_entropy has no settings/,
    ],
    [
      one({}),
      { lossFn: 'ppo', lossConfig: { clip_low_threshold: 1.1 } },
      /the bounds of the ratio are 1.1 and 1.2/,
    ],
    [
      one({}),
      { lossFn: 'dro', lossConfig: { beta: Infinity } },
      /loss_fn_config.beta Infinity, a number beyond ±1.8e308 is not supported/,
    ],
    [one({}), { lossFn: 'dro', lossConfig: { beta: 0 } }, /beta is 0; it must be above 0/],
    [[], {}, /data has 0 datums; send 1 to 1024/],
    [Array.from({ length: 1025 }, () => one({})[0]), {}, /data has 1025 datums/],
  ];
  for (const [data, more, pattern] of cases) {
    const { status, body } = await model.submit(data, more);
    t.equal(status, 400, String(pattern));
    t.match(body.detail, pattern);
  }
  await model.forwardBackward(lesson());
  t.match(await model.step(), {
    category: 'user',
    error: /the step was not taken and the weights are unchanged: request 1 of it failed/,
  });
  t.same(await weightsOf(model), before);
  await model.forwardBackward(lesson());
  const { metrics } = await model.step();
  t.ok(metrics['optim/grad_norm'] > 0, 'the next step is taken');
  const bad = { adam_params: { learning_rate: 0.1, eps: 0 } };
  t.equal(
    (await client.post('optim_step', { model_id: model.id, seq_id: model.next++, ...bad })).status,
    400,
  );
  const muon = { model_id: model.id, seq_id: model.next++, optimizer_params: { type: 'dimuon' } };
  t.match(await client.result(await client.post('optim_step', muon)), {
    error: /optimizer_params is not supported/,
  });
  await model.forwardBackward(lesson());
  t.ok((await model.step()).metrics, 'refused numbers hold nobody up');
  for (const [seqId, pattern] of [
    [0, /the first request of a model has 1/],
    [1e6, /too far ahead/],
  ] as const) {
    const { status, body } = await model.submit(lesson(), { seqId });
    t.equal(status, 400);
    t.match(body.detail, pattern);
  }
});

t.test('a malformed body of any operation uses up the number that it names', async t => {
  const model = await client.model(base);
  const deep = JSON.parse(`${'['.repeat(80)}${']'.repeat(80)}`);
  const optim = { adam_params: {} };
  for (const [route, more, pattern] of [
    ['load_weights', { path: 5 }, /^path must be string, got 5/],
    ['load_weights', {}, /^"path" is required/],
    ['load_weights', { path: 'tinker://none', optimizer: 'yes' }, /^optimizer must be boolean/],
    ['load_weights', { path: 'tinker://none' }, /there is no checkpoint/],
    ['optim_step', { adam_params: 'x' }, /^adam_params must be object/],
    ['optim_step', { ...optim, deep }, /nested more than 64 levels/],
    ['save_weights', { path: 5 }, /^path must be string, got 5/],
    ['save_weights', { path: 'a', ttl_seconds: 0 }, /^ttl_seconds/],
    ['save_weights_for_sampler', { kind: 'other' }, /^kind must be/],
    ['save_weights_for_sampler', { path: 'a', deep }, /nested more than 64 levels/],
  ] as const) {
    const { status, body } = await client.post(route, { model_id: model.id, seq_id: model.next++, ...more });
    t.match(status, route === 'load_weights' && /checkpoint/.test(String(pattern)) ? 404 : 400);
    t.match(body.detail, pattern);
  }
  t.ok((await model.step()).metrics, 'the next operation does not wait for them');

  const encoded = () =>
    Buffer.from(
      encodeForwardBackwardRequest({
        modelId: model.id,
        seqId: model.next++,
        data: lesson(),
        lossFn: 'cross_entropy',
        lossConfig: {},
        forwardOnly: false,
      }),
    );
  const first = model.next;
  const image = Buffer.from([0x1a, 4, 0x0a, 2, 0x12, 0]);
  for (const [bytes, pattern] of [
    [Buffer.concat([encoded(), image]), /data\[2\]\.model_input has an image/],
    [encoded().subarray(0, -3), /the request is not a protobuf message/],
  ] as const) {
    const { status, body } = await client.post('forward_backward', bytes);
    t.equal(status, 400);
    t.match(body.detail, pattern);
  }
  t.match(await model.step(), { error: new RegExp(`request ${first} of it failed \\(data\\[2\\]`) });
  t.ok((await model.step()).metrics, 'and a lost gradient is noticed once');
  const large = await compress(Buffer.concat([encoded(), Buffer.alloc(65 * MIB)]));
  const json = { model_id: model.id, seq_id: model.next++ };
  for (const [body, headers, status] of [
    [large, { 'content-encoding': 'zstd' }, 413],
    [json, {}, 415],
  ] as const)
    t.equal((await client.post('forward_backward', body, headers)).status, status);
  t.match(await model.step(), {
    error: new RegExp(`request ${json.seq_id - 1} of it failed \\(the body has`),
  });
  t.ok((await model.step()).metrics, 'nor does it wait for bodies of another kind or size');
  const refused = async (body: Buffer, encoding: string, status: number, pattern: RegExp) => {
    const lost = model.next - 1;
    const reply = await client.post('forward_backward', body, { 'content-encoding': encoding });
    t.equal(reply.status, status);
    t.match(reply.body.detail, pattern);
    t.match(await model.step(), {
      error: new RegExp(`request ${lost} of it failed \\(${reply.body.detail}`),
    });
  };
  const filled = () => Buffer.concat([encoded(), Buffer.alloc(65 * MIB)]);
  await refused(filled(), 'identity', 413, /too large/);
  await refused(Buffer.concat([await compress(encoded()), Buffer.alloc(65 * MIB)]), 'zstd', 413, /too large/);
  for (const [encoding, pack] of [
    ['br', brotliCompressSync],
    ['gzip', gzipSync],
    ['deflate', deflateSync],
    ['br', (body: Buffer) => body],
    ['unheard', (body: Buffer) => body],
  ] as const) {
    const unknown = new RegExp(`content-encoding ${encoding} is not supported; use zstd`);
    await refused(pack(encoded()), encoding, 415, unknown);
  }
  await refused(encoded(), 'zstd', 400, /the body is not zstd/);
  t.ok((await model.step()).metrics, 'nor for bodies that are too large or in another encoding as they come');
  for (const [encode, encoding, status, pattern] of [
    [gzipSync, 'gzip', 415, /content-encoding gzip is not supported; use identity/],
    [(text: string) => text.slice(0, -1), 'identity', 400, /JSON/],
    [(text: string) => text.padEnd(5 * MIB), 'identity', 413, /more than 4 MiB/],
    [(text: string) => Buffer.concat([gzipSync(text), Buffer.alloc(5 * MIB)]), 'gzip', 413, /than 4 MiB$/],
  ] as const) {
    const text = JSON.stringify({ adam_params: {}, model_id: model.id, seq_id: model.next++ });
    const headers = { 'content-type': 'application/json', 'content-encoding': encoding };
    const { body, ...reply } = await client.post('optim_step', Buffer.from(encode(text)), headers);
    t.equal(reply.status, status);
    t.match(body.detail, pattern);
  }
  const noise = await client.post('forward_backward', Buffer.from('noise'));
  t.match(
    noise.body.detail,
    /not a protobuf message.*; no seq_id of an open model was read: if it had one, send/,
  );
  for (const [route, text, isAdvised] of [
    ['create_session', '{"tags": ', false],
    ['asample', `{"sampling_session_id": "${model.session}:sample:0", "seq_id": 3`, false],
    ['optim_step', '{"adam_params": ', false],
    ['optim_step', `{"model_id": "${model.session}:train:7", "seq_id": 3`, true],
    ['save_weights', `{"model_id": "${model.id}", "seq_id": "x`, true],
  ] as const) {
    const reply = await client.post(route, Buffer.from(text), { 'content-type': 'application/json' });
    t.equal(reply.status, 400);
    t.equal(/no seq_id of an open model was read/.test(reply.body.detail), isAdvised, `${route} ${text}`);
  }
  t.ok((await model.step()).metrics, 'nor for JSON that is packed, broken or too large');
  const nobody = [null, [], 5, {}, { model_id: 5, seq_id: 1 }, { model_id: model.id, seq_id: 'x' }];
  for (const body of nobody) t.equal((await client.post('load_weights', body)).status, 400);
});

t.test('a checkpoint that cannot be loaded leaves the gradients that were added', async t => {
  const [model, twin] = [await client.model(base), await client.model(base)];
  const { path } = await (await client.model(base, 1, 8)).operation('save_weights', { path: 'rank-8' });
  for (const one of [model, twin]) await one.forwardBackward(lesson());
  t.match(await model.operation('load_weights', { path, optimizer: true }), {
    error: /another model/,
    category: 'user',
  });
  await Promise.all([model.step(LINEAR), twin.step(LINEAR)]);
  t.same(await weightsOf(model), await weightsOf(twin));
});

t.test('an overflowing gradient takes no step and touches no other model', async t => {
  const [model, other] = [await client.model(base), await client.model(base, 9)];
  const before = [await weightsOf(model), await weightsOf(other)];
  const huge = 3e38;
  await model.forwardBackward(lesson(huge));
  await model.forwardBackward(lesson(huge));
  t.match(await model.step(), {
    category: 'user',
    error: /the gradient's norm is .*; the step was not taken/,
  });
  t.same([await weightsOf(model), await weightsOf(other)], before);
  await model.forwardBackward(lesson());
  t.ok((await model.step()).metrics);
});

t.test('a client that vanishes leaves a whole step or none', async t => {
  const model = await client.model(base);
  const twin = await client.model(base);
  const stop = new AbortController();
  const bytes = (id: string, seqId: number) =>
    encodeForwardBackwardRequest({
      modelId: id,
      seqId,
      data: lesson(),
      lossFn: 'cross_entropy',
      lossConfig: {},
      forwardOnly: false,
    });
  await model.submit(lesson());
  await client.post('optim_step', { model_id: model.id, seq_id: 2, adam_params: LINEAR });
  const poll = fetch(`${client.url}/api/v1/retrieve_future`, {
    method: 'POST',
    signal: stop.signal,
    body: '{}',
  }).catch(() => {});
  stop.abort();
  await poll;
  await twin.forwardBackward(lesson());
  await twin.step(LINEAR);
  const next = { model_id: model.id, seq_id: 3, sampling_session_seq_id: 0 };
  await client.result(await client.post('save_weights_for_sampler', next));
  t.same(await weightsOf(model), await weightsOf(twin), 'a step that was submitted whole is applied whole');

  const before = await weightsOf(model);
  await client.post('forward_backward', bytes(model.id, 5));
  const step = await client.post('optim_step', { model_id: model.id, seq_id: 6, adam_params: LINEAR });
  const began = performance.now();
  t.match(await client.result(step), {
    error: /seq_id 6 waited 3 s for 4, which never came/,
    category: 'user',
  });
  t.ok(performance.now() - began >= GAP_MS - 50);
  t.same(await weightsOf(model), before, 'a step with a lost part is not applied');
  t.equal((await model.submit(lesson(), { seqId: 4 })).status, 400, 'the lost part comes too late');
  model.next = 7;
  t.match(
    await model.step(LINEAR),
    { error: /the step was not taken/ },
    'its outcome is dropped with the next step',
  );
  await model.forwardBackward(lesson());
  await twin.forwardBackward(lesson());
  await Promise.all([model.step(LINEAR), twin.step(LINEAR)]);
  t.same(await weightsOf(model), await weightsOf(twin), 'and nothing is left behind');
});

t.test(
  'results are polled: 408 while it continues, again after delivery, 404 and 410 where there is none',
  async t => {
    const model = await client.model(base);
    const { body } = await client.post('optim_step', { model_id: model.id, seq_id: 2, adam_params: {} });
    const pending = await client.post('retrieve_future', { request_id: body.request_id });
    t.equal(pending.status, 408);
    t.same(pending.body, { type: 'try_again', request_id: body.request_id, queue_state: 'active' });
    const fb = await model.submit(lesson(), { seqId: 1, forwardOnly: true });
    const [once, twice] = [await client.result(fb), await client.result(fb)];
    t.same(once, twice, 'a result is there for a reply that got lost');
    t.equal(
      (await client.result({ status: 200, body })).metrics['optim/grad_norm'],
      0,
      'forward adds no gradient',
    );
    t.equal((await client.post('retrieve_future', { request_id: 'nonsense' })).status, 404);
    const [run] = body.request_id.split(':');
    for (const request_id of [run, `${run}:`, `${run}:nonsense:1`])
      t.equal((await client.post('retrieve_future', { request_id })).status, 410, request_id);
    await client.post(`sessions/${model.session}/finish`, { reason: { type: 'success' }, detail: '' });
    t.equal((await client.post('retrieve_future', { request_id: body.request_id })).status, 410);
    t.equal((await model.submit(lesson())).status, 404);
    t.equal((await client.post('session_heartbeat', { session_id: model.session })).status, 410);
  },
);

t.test('models of other keys are not found, and share nothing but the base', async t => {
  const mine = await client.model(base, 1);
  const alone = await client.model(base, 1);
  const stranger = new WireClient(tinker.url, 'tml-stranger');
  const theirs = await stranger.model(base, 2);
  const sampler = await mine.sampler(0);
  for (const reply of [
    stranger.post('optim_step', { model_id: mine.id, seq_id: 2, adam_params: {} }),
    stranger.post('get_info', { model_id: mine.id }),
    stranger.post('unload_model', { model_id: mine.id }),
    stranger.post('save_weights', { model_id: mine.id, seq_id: 2, path: 'x' }),
    stranger.post('asample', {
      sampling_session_id: sampler,
      seq_id: 0,
      prompt: { chunks: [] },
      sampling_params: {},
    }),
    stranger.get(`samplers/${encodeURIComponent(sampler)}`),
    stranger.get(`training_runs/${encodeURIComponent(mine.id)}`),
    stranger.post('retrieve_future', { request_id: (await mine.submit(lesson())).body.request_id }),
  ]) {
    t.equal((await reply).status, 404);
  }
  t.equal((await stranger.post('session_heartbeat', { session_id: mine.session })).status, 410);
  t.equal((await stranger.post(`sessions/${mine.session}/finish`, {})).status, 410);
  await alone.sampler(0);
  await alone.forwardBackward(lesson());
  const [a, b] = await Promise.all([
    mine.step(LINEAR),
    theirs.forwardBackward(lesson(3)).then(() => theirs.step(LINEAR)),
  ]);
  const c = await alone.step(LINEAR);
  t.equal(a.metrics['optim/grad_norm'], c.metrics['optim/grad_norm']);
  t.ok(b.metrics['optim/grad_norm'] > a.metrics['optim/grad_norm']);
  t.same(await weightsOf(mine), await weightsOf(alone), 'what others train at the same time changes nothing');
  const bases = [];
  for (const model of [mine, theirs]) {
    const { model: own } = server.model(model.id, ownerOf({ headers: { 'x-api-key': model.client.key } }));
    bases.push((await (await own.policy).weightsNow()).base!.flat.buffer);
  }
  const { weights } = await tinker.models.base.policy.weightsNow();
  t.ok(
    bases.every(buffer => buffer === weights.flat.buffer),
    'the base is in memory once',
  );
});

const BOMBS = 24;

t.test('bodies are protobuf, plain or zstd, up to 64 MiB', async t => {
  const model = await client.model(base);
  const request = {
    modelId: model.id,
    seqId: 1,
    data: lesson(),
    lossFn: 'cross_entropy',
    lossConfig: {},
    forwardOnly: false,
  };
  const plain = encodeForwardBackwardRequest(request);
  const zstd = { 'content-encoding': 'zstd' };
  const first = await client.post('forward_backward', await compress(plain), zstd);
  t.equal(first.status, 200);
  t.equal((await client.post('forward_backward', plain)).body.request_id, first.body.request_id);
  const refused = async (body: unknown, headers: Record<string, string>, status: number, pattern: RegExp) => {
    const reply = await client.post('forward_backward', body, headers);
    t.equal(reply.status, status);
    t.match(reply.body.detail, pattern);
  };
  await refused(
    await compress(Buffer.alloc(65 * 2 ** 20)),
    zstd,
    413,
    /more than 64 MiB when it is unpacked/,
  );
  await refused(plain, zstd, 400, /the body is not zstd/);
  await refused(plain, { 'content-encoding': 'br' }, 415, /content-encoding br is not supported; use zstd/);
  await refused(Buffer.alloc(65 * 2 ** 20), {}, 413, /too large/);
  await refused({ model_id: model.id }, {}, 415, /takes application\/x-protobuf alone/);
  await refused(Buffer.from('noise'), {}, 400, /not a protobuf message/);
  await client.result(first);
  t.ok(
    (await model.operation('optim_step', { seq_id: 2, adam_params: {} })).metrics,
    'nothing of this held the model up',
  );
});

t.test('bombs of one key are unpacked two at a time, and another key takes its turn', async t => {
  const bomb = await compress(Buffer.alloc(64 * MIB));
  let peak = 0;
  const before = process.memoryUsage().arrayBuffers;
  const watch = setInterval(() => {
    peak = Math.max(peak, process.memoryUsage().arrayBuffers - before);
  }, 1);
  t.teardown(() => clearInterval(watch));
  const send = (key: WireClient) =>
    key.post('forward_backward', bomb, { 'content-encoding': 'zstd' }).then(({ status }) => status);
  let open = BOMBS;
  const all = Array.from({ length: BOMBS }, () => send(client).finally(() => open--));
  await all[0];
  t.equal(await send(new WireClient(client.url, 'tml-stranger')), 400);
  t.ok(open > BOMBS / 2, `${open} of the first key still wait`);
  t.same(new Set(await Promise.all(all)), new Set([400]));
  t.ok(peak < (BOMBS / 2) * 64 * MIB, `${Math.round(peak / MIB)} MiB`);
});

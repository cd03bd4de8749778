import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { Agent, request } from 'undici';
import { fill, smallDisk } from '../../../env-server/persistence/small-disk.test-data.ts';
import { processStart } from '../../../shared/run-folder/is-alive.ts';
import { largestDifference } from '../../policy/policies.test-data.ts';
import { NO_LOGPROB } from '../../tinker/proto.ts';
import type { TinkerSession } from './server.ts';
import {
  floats,
  ids,
  lesson,
  sample,
  sampleBody,
  startTinker,
  WireClient,
  type WireModel,
} from './tinker.test-data.ts';

const checkpoints = await mkdtemp(join(tmpdir(), 'ragen-tinker-kept-'));
t.after(() => rm(checkpoints, { recursive: true, force: true }));
const { client, server, models, url } = await startTinker(t, { checkpoints });
t.setTimeout(900_000);
const base = server.name;
t.afterEach(() => client.finishAll());
const PROMPT = [5, 9, 17];

/** log p of tokens behind the prompt by `forward`. */
async function forward(model: WireModel, tokens: Int32Array): Promise<Float32Array> {
  const all = [...PROMPT, ...tokens];
  const { outputs } = await model.forwardBackward(
    [
      {
        tokens: Int32Array.from(all.slice(0, -1)),
        inputs: new Map([
          ['target_tokens', ids(...all.slice(1))],
          ['weights', floats(...all.slice(1).map(() => 1))],
        ]),
      },
    ],
    { forwardOnly: true },
  );
  return outputs[0].logprobs;
}

async function trained(steps: number, seed = 1): Promise<WireModel> {
  const model = await client.model(base, seed);
  for (let i = 0; i < steps; i++) {
    await model.forwardBackward(lesson());
    await model.step();
  }
  return model;
}

const cold = {
  sampling_params: { max_tokens: 4, temperature: 0.5, top_k: 40, top_p: 0.9, seed: 7, stop: [] },
};

t.test('samples, their log-probabilities and those of the prompt equal those of forward', async t => {
  const model = await trained(2);
  const sampler = await model.sampler(0);
  const more = { num_samples: 3, prompt_logprobs: true, topk_prompt_logprobs: 2 };
  for (const body of [sampleBody(sampler, 0, more), sampleBody(sampler, 1, { ...more, ...cold })]) {
    const { sequences, promptLogprobs, topkPromptLogprobs: top } = await sample(client, body);
    t.equal(sequences.length, 3);
    for (const { tokens, logprobs, stopReason } of sequences) {
      t.equal(stopReason, 'length');
      t.equal(tokens.length, 4);
      const wanted = await forward(model, tokens);
      t.ok(largestDifference(logprobs!, wanted.slice(2)) < 1e-4);
      t.ok(largestDifference(promptLogprobs!.slice(1), wanted.slice(0, 2)) < 1e-4);
    }
    t.ok(Number.isNaN(promptLogprobs![0]) && promptLogprobs!.length === 3);
    t.same([top!.k, top!.length, ...top!.tokenIds.slice(0, 2)], [2, 3, 0, 0]);
    t.same(top!.logprobs.slice(0, 2), Float32Array.of(NO_LOGPROB, NO_LOGPROB));
    for (const position of [1, 2]) {
      const [most, second] = top!.logprobs.slice(position * 2, position * 2 + 2);
      t.ok(most >= second && most >= promptLogprobs![position] - 1e-4);
    }
  }
  const [a, b] = await Promise.all([2, 3].map(seq => sample(client, sampleBody(sampler, seq))));
  t.same(a, b, 'equal seeds, equal samples');
});

t.test(
  'a snapshot keeps its weights while the model learns, inflight takes the newest, a base has none',
  async t => {
    const model = await trained(1);
    const prompt = { prompt_logprobs: true, sampling_params: { max_tokens: 1, seed: 1 } };
    let seq = 0;
    const scores = async (sampler: string) =>
      (await sample(client, sampleBody(sampler, seq++, prompt))).promptLogprobs!.slice(1);
    const [old, inflight] = [await model.sampler(0), await model.sampler(1, { kind: 'inflight' })];
    const first = await scores(old);
    t.same(await scores(inflight), first);
    await model.forwardBackward(lesson());
    await model.step();
    const now = await model.sampler(2);
    const newest = await scores(now);
    t.ok(largestDifference(newest, first) > 1e-3);
    t.same(await scores(old), first);
    t.same(await scores(inflight), newest);
    const created = await client.post('create_sampling_session', {
      session_id: model.session,
      sampling_session_seq_id: 3,
      base_model: base,
    });
    const plain = await scores(created.body.sampling_session_id);
    const fresh = await client.model(base);
    t.ok(largestDifference(plain, (await forward(fresh, Int32Array.of(3))).slice(0, 2)) < 1e-4);
    for (let n = 4; n < 21; n++) {
      await model.forwardBackward(lesson());
      await model.step({ learning_rate: 1e-4 });
      await model.sampler(n);
    }
    await t.rejects(scores(old), {
      message: /this sampler's weights are gone: the server keeps the 16 newest/,
    });
    t.ok(await scores(inflight));
  },
);

t.test('a sampler has the weights of its time, also when the model went back to earlier ones', async t => {
  const model = await client.model(base);
  const scores = async (sampler: string) =>
    (await sample(client, sampleBody(sampler, 0, { prompt_logprobs: true }))).promptLogprobs!.slice(1);
  const { path } = await model.operation('save_weights', { path: 'start' });
  const found: Float32Array[] = [];
  for (const data of [lesson(), lesson(-1)]) {
    await model.operation('load_weights', { path, optimizer: true });
    await model.forwardBackward(data);
    await model.step();
    found.push(await scores(await model.sampler(found.length)));
    t.ok(largestDifference(found.at(-1)!, (await forward(model, Int32Array.of(3))).slice(0, 2)) < 1e-4);
  }
  t.ok(largestDifference(found[0], found[1]) > 1e-3);
});

t.test('a model that was unloaded leaves no weights to the samplers of its session', async t => {
  const model = await trained(1);
  const samplers = [await model.sampler(0), await model.sampler(1, { kind: 'inflight' })];
  await client.result(await client.post('unload_model', { model_id: model.id }));
  for (const sampler of samplers) {
    await t.rejects(sample(client, sampleBody(sampler, 0)), {
      message: /this sampler's weights are gone: the model was unloaded/,
    });
  }
});

t.test('stop tokens, length, context and stop strings end a response', async t => {
  const sampler = await (await trained(0)).sampler(0);
  const ask = async (seq: number, sampling: object) =>
    (
      await sample(
        client,
        sampleBody(sampler, seq, { sampling_params: { max_tokens: 30, seed: 3, ...sampling } }),
      )
    ).sequences[0];
  const free = await ask(0, { stop: [] });
  t.equal(free.tokens.length, 30);
  const stopped = await ask(1, { stop: [free.tokens[4]] });
  t.equal(stopped.stopReason, 'stop');
  t.same(
    stopped.tokens,
    free.tokens.slice(0, free.tokens.indexOf(free.tokens[4]) + 1),
    'the stop token is kept',
  );
  const { tokenizer } = models.base;
  const text = tokenizer.decode([...free.tokens.slice(2, 4)]);
  const cut = await ask(2, { stop: [text] });
  t.equal(cut.stopReason, 'stop');
  t.ok(tokenizer.decode([...cut.tokens]).includes(text) && cut.tokens.length <= 4, 'stops may be texts');
  const none = await ask(3, {});
  t.ok(none.tokens.length === 30 || models.base.stopTokenIds.includes(none.tokens.at(-1)!));
});

t.test('sampling requests that do not fit are refused by name', async t => {
  const model = await trained(0);
  const sampler = await model.sampler(0);
  const cases: readonly [object, RegExp][] = [
    [{ prompt: { chunks: [] } }, /the prompt has 0 tokens; it must have 1 to 1023/],
    [
      { prompt: { chunks: [{ type: 'encoded_text', tokens: [600] }] } },
      /the prompt has token 600; the vocabulary has 512/,
    ],
    [
      { prompt: { chunks: [{ type: 'image', data: 'x' }] } },
      /prompt.chunks\[0\] is "image"; only encoded_text/,
    ],
    [{ sampling_params: { max_tokens: 0 } }, /sampling_params\/max_tokens/],
    [{ sampling_params: { top_p: 0 } }, /sampling_params\/top_p/],
    [{ num_samples: 1e6 }, /num_samples/],
    [{ topk_prompt_logprobs: 21 }, /topk_prompt_logprobs is 21; it can be 0 to 20/],
    [{ topk_sample_logprobs: 3 }, /topk_sample_logprobs is not supported/],
    [{ record_stability_info: true }, /record_stability_info is not supported/],
    [{ sampling_session_id: null }, /sampling_session_id is missing/],
  ];
  for (const [more, pattern] of cases) {
    const { status, body } = await client.post('asample', sampleBody(sampler, 0, more));
    t.equal(status, 400, String(pattern));
    t.match(body.detail, pattern);
  }
  const neutral = {
    topk_sample_logprobs: 0,
    target_prompt_logprobs: null,
    prompt_alt_tokens_k: 0,
    record_stability_info: false,
  };
  const once = await client.post('asample', sampleBody(sampler, 0, neutral));
  const again = await client.post('asample', sampleBody(sampler, 0, neutral));
  t.equal(once.body.request_id, again.body.request_id);
  t.same(once.body.sample_sequence_ids, [`${sampler}:0:0`]);
  const other = await client.post('asample', sampleBody(sampler, 0, { num_samples: 2 }));
  t.match(other, { status: 400, body: { detail: /seq_id 0 was used for another sample/ } });
  await client.result(once);
});

t.test('ten thousand sampling requests at once are refused beyond 256, and other clients sample', async t => {
  const sampler = await (await trained(0)).sampler(0);
  const stranger = new WireClient(url, 'tml-stranger');
  const theirs = await (await stranger.model(base)).sampler(0);
  const long = { sampling_params: { max_tokens: 200, seed: 1, stop: [] } };
  const dispatcher = new Agent({ connections: 400 });
  t.teardown(() => dispatcher.close());
  const flood = Array.from({ length: 10_000 }, async (_, seq) => {
    const reply = await request(`${url}/api/v1/asample`, {
      dispatcher,
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': client.key },
      body: JSON.stringify(sampleBody(sampler, seq, long)),
    });
    return {
      status: reply.statusCode,
      body: (await reply.body.json()) as { detail?: string; request_id?: string },
    };
  });
  const meanwhile = await sample(stranger, sampleBody(theirs, 0));
  t.equal(meanwhile.sequences[0].tokens.length, 4);
  const replies = await Promise.all(flood);
  const taken = replies.filter(({ status }) => status === 200);
  const refused = replies.filter(({ status }) => status === 429);
  t.equal(taken.length + refused.length, 10_000);
  t.ok(taken.length >= 256 && refused.length > 5_000, `${taken.length} were taken`);
  t.match(refused[0].body.detail, /256 sampling requests of this session are open/);
  await client.finishAll();
  t.equal(
    (await client.post('retrieve_future', { request_id: taken.at(-1)!.body.request_id })).status < 500,
    true,
  );
  await stranger.finishAll();
});

t.test(
  'a key has 64 sessions with 1,024 sampling requests open in all of them, other keys have theirs',
  async t => {
    const sessions = Array.from({ length: 64 }, () => server.createSession('one key'));
    t.throws(() => server.createSession('one key'), {
      status: 429,
      message: /^64 sessions of this key are open/,
    });
    const take = (own: (typeof sessions)[number]) => own.samples.take();
    const leave = sessions.flatMap(own => Array.from({ length: 16 }, () => take(own)));
    t.throws(() => take(sessions[4]), { status: 429, message: /1024 sampling requests of this key/ });
    const other = server.createSession('another key');
    leave.push(take(other));
    for (const end of leave) end();
    take(sessions[4])();
    await Promise.all([...sessions, other].map(session => server.endSession(session)));
  },
);

t.test('a sampler with a deleted checkpoint is its client’s fault, by name', async t => {
  const model = await trained(1);
  const { path } = await model.operation('save_weights_for_sampler', { path: 'gone' });
  const body = { session_id: model.session, sampling_session_seq_id: 5, base_model: null, model_path: path };
  const { sampling_session_id: sampler } = (await client.post('create_sampling_session', body)).body;
  await client.get(`training_runs/${model.id}/checkpoints/sampler_weights/gone`, 'DELETE');
  const refusal = { status: 404, body: { detail: /checkpoint of this sampler was deleted/ } };
  t.match(await client.post('asample', sampleBody(sampler, 0)), refusal);
});

/** A sampler of a checkpoint's path. */
async function samplerOf({ session }: WireModel, number: number, path: string): Promise<string> {
  const body = { session_id: session, sampling_session_seq_id: number, model_path: path };
  return (await client.post('create_sampling_session', body)).body.sampling_session_id;
}

t.test('a sampler has the weights of its checkpoint, and none after that is overwritten', async t => {
  const model = await trained(1);
  const save = { path: 'latest', overwrite: true };
  const scores = async (sampler: string) =>
    (await sample(client, sampleBody(sampler, 0, { prompt_logprobs: true }))).promptLogprobs!.slice(1);
  const { path } = await model.operation('save_weights_for_sampler', save);
  const used = await samplerOf(model, 0, path);
  const first = await scores(used);
  t.ok(largestDifference(first, await scores(await model.sampler(1))) < 1e-5);
  await model.forwardBackward(lesson());
  await model.step();
  await model.operation('save_weights_for_sampler', save);
  t.ok(largestDifference(await scores(await samplerOf(model, 2, path)), first) > 1e-3);
  t.match(await client.post('asample', sampleBody(used, 1)), {
    status: 404,
    body: { detail: /checkpoint of this sampler was deleted or overwritten/ },
  });
});

t.test('what a server that was killed left half written is removed at the next start', async t => {
  const left = t.testdir();
  const id = randomUUID();
  const own = `.${process.pid}.${processStart(process.pid) ?? ''}.${id}`;
  // Numbers of processes end at 2^22.
  const gone = [`.4194305.7.${id}`, `.${process.pid}.1.${id}`];
  const kept = [own, '.other', `${id}-train-0`, `.${id}`];
  for (const name of [...gone, ...kept]) await mkdir(join(left, name));
  await startTinker(t, { checkpoints: left });
  while ((await readdir(left)).length > kept.length) await new Promise(resolve => setTimeout(resolve, 10));
  t.same((await readdir(left)).sort(), kept.sort(), 'of this process, and of others’ making');
});

t.test('a sampler with an expired checkpoint gets 404 at once', async t => {
  const model = await trained(0);
  const save = { path: 'brief', ttl_seconds: 1 };
  const { path } = await model.operation('save_weights_for_sampler', save);
  const sampler = await samplerOf(model, 0, path);
  t.equal((await sample(client, sampleBody(sampler, 0))).sequences.length, 1);
  await new Promise(resolve => setTimeout(resolve, 1_100));
  t.match(await client.post('asample', sampleBody(sampler, 1)), {
    status: 404,
    body: { detail: /checkpoint of this sampler was deleted or overwritten, or has expired/ },
  });
});

t.test('a model continues from a checkpoint bit for bit, in another process too', async t => {
  const model = await trained(2);
  const { path } = await model.operation('save_weights', { path: 'two' });
  t.equal(path, `tinker://${model.id}/weights/two`);
  const folder = join(checkpoints, model.id.replace(':train:', '-train-'), 'weights', 'two');
  t.same((await readdir(folder)).sort(), [
    'adapter_config.json',
    'adapter_model.safetensors',
    'optimizer',
    'tinker.json',
  ]);
  const { path: named } = await model.operation('save_weights_for_sampler', { path: 'two' });
  const sampled = await sample(client, sampleBody(await model.sampler(0), 0));
  const goOn = async (one: WireModel) => {
    await one.forwardBackward(lesson());
    await one.step();
    return forward(one, Int32Array.of(3, 4));
  };
  const straight = await goOn(model);
  await client.finishAll();

  const other = await startTinker(t, { checkpoints });
  const load = async (more: object): Promise<WireModel> => {
    const session_id = await other.client.session();
    const body = { session_id, model_seq_id: 7, path, optimizer: true, ...more };
    const { model_id, error } = await other.client.result(await other.client.post('load_weights', body));
    if (error) throw new Error(error);
    t.equal(model_id, `${session_id}:train:7`);
    const { WireModel: Model } = await import('./tinker.test-data.ts');
    return new Model(other.client, model_id, session_id);
  };
  t.same(await goOn(await load({})), straight, 'with the optimizer');
  t.notSame(await goOn(await load({ optimizer: false })), straight, 'without it the moments begin at 0');
  const legacy = await other.client.model(base, 5);
  const lost = { model_id: legacy.id, path: `${path}-lost` };
  const missing = await other.client.post('load_weights', { ...lost, seq_id: legacy.next++ });
  t.match(missing, { status: 404, body: { detail: /there is no checkpoint/ } });
  const loaded = await legacy.operation('load_weights', { path, optimizer: true });
  t.equal(loaded.model_id, legacy.id);
  t.same(await goOn(legacy), straight, 'into a model that is there, as SDK 0.25 does');
  const session_id = await other.client.session();
  const created = await other.client.post('create_sampling_session', {
    session_id,
    sampling_session_seq_id: 0,
    model_path: named,
  });
  const { sampling_session_id: id } = created.body;
  t.same(await sample(other.client, sampleBody(id, 0)), sampled, 'a sampler from a path');
  t.same((await other.client.get(`samplers/${encodeURIComponent(id)}`)).body, {
    sampler_id: id,
    base_model: base,
    model_path: named,
  });
  t.match((await other.client.post('weights_info', { tinker_path: path })).body, {
    base_model: base,
    is_lora: true,
    lora_rank: 4,
    train_mlp: true,
    train_attn: true,
    train_unembed: false,
  });
  t.equal((await legacy.operation('load_weights', { path: named, optimizer: true })).model_id, legacy.id);
  const wide = await other.client.model(base, 5, 8);
  t.match(await wide.operation('load_weights', { path, optimizer: true }), {
    error: /holds another model: lora differ/,
  });
  const runs = `training_runs/${encodeURIComponent(model.id)}/checkpoints`;
  t.match((await other.client.get(runs)).body.checkpoints, [
    { checkpoint_id: 'weights/two', checkpoint_type: 'training', tinker_path: path },
    { checkpoint_id: 'sampler_weights/two', checkpoint_type: 'sampler', tinker_path: named },
  ]);
  const stranger = new WireClient(other.url, 'tml-stranger');
  t.same((await stranger.get(runs)).body, { checkpoints: [] });
  t.equal((await stranger.get(`${runs}/weights/two`, 'DELETE')).status, 404);
  t.equal((await stranger.post('weights_info', { tinker_path: path })).status, 404);
  t.equal((await other.client.get(`${runs}/weights/two`, 'DELETE')).status, 204);
  t.equal((await other.client.post('weights_info', { tinker_path: path })).status, 404);
});

t.test('names of checkpoints stay in their folder, and are replaced only on request', async t => {
  const model = await trained(0);
  for (const name of [
    '../out',
    '..',
    '/etc/x',
    'a/b',
    'a\\b',
    '.hidden',
    'x'.repeat(129),
    'a\0b',
    'C:x',
    ' ',
  ]) {
    t.match(
      await model.operation('save_weights', { path: name }),
      { error: /the checkpoint name .* is not valid/ },
      name,
    );
    t.match(await model.operation('save_weights_for_sampler', { path: name }), { error: /is not valid/ });
  }
  for (const path of [
    `tinker://${model.id}/weights/../../x`,
    `tinker://../../etc:train:0/weights/x`,
    'file:///etc/passwd',
    `tinker://${model.id}/optimizer/x`,
  ]) {
    t.equal((await client.post('weights_info', { tinker_path: path })).status, 404, path);
    const load = { session_id: model.session, model_seq_id: 3, path, optimizer: true };
    t.equal((await client.post('load_weights', load)).status, 404, path);
  }
  t.equal((await client.get(`training_runs/${encodeURIComponent('../../etc')}/checkpoints`)).status, 404);
  t.ok((await model.operation('save_weights', { path: 'one' })).path);
  t.match(await model.operation('save_weights', { path: 'one' }), {
    error: /exists: choose another name, or set overwrite/,
  });
  t.ok((await model.operation('save_weights', { path: 'one', overwrite: true })).path);
  t.ok((await model.operation('save_weights', { path: 'short', ttl_seconds: 1 })).path);
  await new Promise(resolve => setTimeout(resolve, 1100));
  const { body } = await client.get(`training_runs/${encodeURIComponent(model.id)}/checkpoints`);
  t.same(
    body.checkpoints.map((one: { checkpoint_id: string }) => one.checkpoint_id),
    ['weights/one'],
  );
  t.ok((await model.operation('save_weights', { path: 'two' })).path);
  const kept = await readdir(join(checkpoints, model.id.replaceAll(':', '-'), 'weights'));
  t.same(kept.sort(), ['one', 'two'], 'what has expired takes no room');
  t.same(
    (await readdir(checkpoints)).filter(name => !/^[0-9a-f-]{36}-train-\d+$/.test(name)),
    [],
  );
});

/** The reply of a session’s new model. */
async function modelOf(session: TinkerSession, n = 0): Promise<object> {
  const opened = server.openModel(session, n, '', { lora: server.loraOf({ rank: 1 }), seed: n }, {});
  const { request_id } = opened as { request_id: string };
  for (;;) {
    const result = await server.result(request_id, session.owner, new AbortController().signal);
    if (result) return result;
  }
}

t.test('models beyond the limit are refused until one is unloaded, and bad ones by name', async t => {
  const session_id = await client.session();
  const create = (n: number, more: object = {}) =>
    client.post('create_model', {
      session_id,
      model_seq_id: n,
      base_model: base,
      lora_config: { rank: 2 },
      ...more,
    });
  const opened = await Promise.all([0, 1, 2, 3, 4].map(async n => client.result(await create(n))));
  t.equal(opened.filter(({ model_id }) => model_id).length, 4);
  t.match(
    opened.find(({ error }) => error),
    { error: /this key has 4 models open, the limit/, category: 'user' },
    'the last one is left to other keys',
  );
  const [others, third] = ['others', 'third'].map(key => server.createSession(key));
  t.match(await modelOf(others), { model_id: `${others.id}:train:0` });
  t.match(await modelOf(third), { error: /the limit of 5 models is reached \(--max-models\)/ });
  await Promise.all([others, third].map(session => server.endSession(session)));
  await client.result(
    await client.post('unload_model', { model_id: opened.find(one => one.model_id).model_id }),
  );
  t.ok((await client.result(await create(5))).model_id);
  t.equal((await create(5)).body.model_id, `${session_id}:train:5`, 'asked again, it is opened once');
  const cases: readonly [object, RegExp][] = [
    [{ base_model: 'another' }, /base_model "another" is not served; this server has/],
    [{ lora_config: { rank: 1000 } }, /lora_config.rank 1000 is not 1 to 256/],
    [{ lora_config: { rank: 2, train_mlp: false, train_attn: false } }, /lora_config trains nothing/],
    [{ optimizer_config: { type: 'dimuon' } }, /optimizer_config.type "dimuon" is not supported/],
    [{ lora_config: { rank: 3 } }, /was used for another model/],
  ];
  for (const [more, pattern] of cases) {
    const { status, body } = await create(5, more);
    t.equal(status, 400);
    t.match(body.detail, pattern);
  }
});

t.test('sessions of made-up keys give way, the longest silent first, those with models never', async t => {
  const { server, client } = await startTinker(t);
  const model = await client.model(server.name);
  const [silent, alive] = ['silent', 'alive'].map(key => server.createSession(key));
  for (let i = 0; i < 5_000; i++) {
    server.createSession(`made-up-${i}`);
    if (i % 1_000 === 0) server.session(alive.id, 'alive');
  }
  t.ok(silent.ended.signal.aborted);
  t.throws(() => server.session(silent.id, 'silent'), /there is no session/);
  t.equal(server.session(alive.id, 'alive'), alive);
  await model.forwardBackward(lesson());
  t.ok((await model.step()).metrics);
});

t.test('a session that is silent for a minute loses its models where another needs room', async t => {
  const [silent, busy] = ['silent', 'busy'].map(key => server.createSession(key));
  for (const n of [0, 1, 2, 3]) await modelOf(silent, n);
  await modelOf(busy);
  silent.seenAt = performance.now();
  await t.rejects(client.model(base), { message: /the limit of 5 models is reached/ });
  silent.seenAt = performance.now() - 60_001;
  t.ok(await client.model(base));
  t.throws(() => server.model(`${silent.id}:train:0`, 'silent'), {
    status: 404,
    message: /its session was silent or ended/,
  });
  await Promise.all([silent, busy].map(session => server.endSession(session)));
});

t.test('models of one key that wait for room together do not take the share of others', async t => {
  const [silent, busy, mine, other] = ['silent', 'busy', 'mine', 'mine'].map(key =>
    server.createSession(key),
  );
  for (const n of [0, 1]) await modelOf(silent, n);
  for (const n of [0, 1, 2]) await modelOf(mine, n);
  silent.seenAt = performance.now() - 60_001;
  const opened = await Promise.all([modelOf(mine, 3), modelOf(other, 0), modelOf(other, 1)]);
  t.equal(opened.filter(one => 'model_id' in one).length, 1);
  t.match(
    opened.find(one => 'error' in one),
    { error: /this key has 4 models open, the limit/ },
  );
  await Promise.all([silent, busy, mine, other].map(session => server.endSession(session)));
});

t.test('with a token, only that key is let in', async t => {
  const guarded = await startTinker(t, { token: 'tml-secret' });
  t.equal((await guarded.client.post('create_session', { tags: [] })).status, 401);
  const known = new WireClient(guarded.url, 'tml-secret');
  t.equal((await known.post('create_session', { tags: [] })).status, 200);
  const session_id = await known.session();
  const bearer = { authorization: 'Bearer tml-secret' };
  const madeUp = new WireClient(guarded.url, 'tml-made-up');
  const beat = await madeUp.post('session_heartbeat', { session_id }, bearer);
  t.equal(beat.status, 200, 'a made-up key next to the token is no other client');
  t.match((await known.post('client/config', {})).body, { sample_max_concurrent_requests: 256 });
  t.match((await known.get('get_server_capabilities')).body, {
    supported_models: [{ model_name: base, max_context_length: 1024 }],
  });
  t.equal((await known.post('no/such/route', {})).status, 404);
});

t.test('a save on a full disk fails whole, and another key saves when there is room', async t => {
  const disk = smallDisk(t, 2 ** 20);
  if (disk === undefined) return t.comment('no small disk: this process may not mount one');
  const { client, url, server } = await startTinker(t, { checkpoints: disk });
  const mine = await client.model(server.name);
  const theirs = await new WireClient(url, 'tml-other').model(server.name);
  await mine.operation('save_weights', { path: 'kept' });
  const empty = fill(disk);
  for (const path of ['kept', 'other']) {
    const failed = await mine.operation('save_weights', { path, overwrite: true });
    t.match(failed, { category: 'server', error: /no space left on device/ });
    t.notMatch(failed.error, disk);
  }
  t.same(
    (await readdir(disk)).filter(name => name.startsWith('.')),
    [],
    'no part is left',
  );
  await mine.forwardBackward(lesson());
  t.ok((await mine.step()).metrics, 'training continues');
  empty();
  t.match(await theirs.operation('save_weights', { path: 'theirs' }), { path: /theirs$/ });
  const { body } = await client.get(`training_runs/${mine.id}/checkpoints`);
  t.match(body, { checkpoints: [{ checkpoint_id: 'weights/kept' }] });
});

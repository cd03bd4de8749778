import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { lacksPython } from '../../../test/python.test-data.ts';
import {
  decodeForwardBackwardOutput,
  encodeForwardBackwardOutput,
  encodeSampleResponse,
} from '../../tinker/proto.ts';
import { settingsWith } from '../policies.test-data.ts';
import { readTinkerCheckpoint } from './checkpoint.ts';
import {
  type Fault,
  faultyProxy,
  playTinker,
  referenceServer,
  tinkerOptions,
  tinkerPolicy,
} from './tinker.test-data.ts';
import { TinkerPolicy } from './tinker-policy.ts';

const missing = lacksPython('tinker', 'numpy');
const skip = missing && `${missing}: pip install tinker==0.38.0 numpy`;

const settings = settingsWith({ policy: 'ppo', dualClip: 0, entropyCoefficient: 0 }, { learningRate: 0.05 });
/** With one forward pass more. */
const custom = settingsWith({ policy: 'ppo', dualClip: 3, entropyCoefficient: 0 }, { learningRate: 0.05 });

/** Samples, three steps and a score through a proxy with faults; the weights at the end. */
async function trained(t: Test, faults: readonly Fault[] = []) {
  const server = await referenceServer(t, t.testdir());
  const proxy = await faultyProxy(t, server.url);
  for (const fault of faults) proxy.fault(fault);
  const policy = await tinkerPolicy(t, proxy.url);
  for (let step = 0; step < 3; step++) {
    await policy.sampler.publish();
    const sequences = await playTinker(policy, 4);
    await policy.update({ sequences }, step === 1 ? custom : settings);
  }
  const { models, log } = await server.state();
  return { b: Object.values(models).at(-1)!.b, steps: Object.values(models).at(-1)!.steps, log, proxy };
}

t.test(
  'requests that are lost, cut, refused for a while or replied to twice are applied once',
  { skip },
  async t => {
    const whole = await trained(t);
    t.equal(whole.steps, 3);
    const routes = [
      'forward_backward',
      'optim_step',
      'save_weights_for_sampler',
      'asample',
      'retrieve_future',
      'create_model',
    ];
    const kinds: readonly Omit<Fault, 'route'>[] = [
      { status: 429, headers: { 'retry-after': '0.02' } },
      { status: 408 },
      { status: 503 },
      { late: true, status: 500 },
      { late: true, cut: 'before' },
      { cut: 'before' },
      { cut: 'within' },
      { body: '<html>' },
    ];
    for (const kind of kinds) {
      // A result can't be taken twice as lost.
      const faults = routes.map((route, i) => ({ route, after: i % 2, times: 2, ...kind }));
      const { b, steps, log } = await trained(t, faults);
      t.same(b, whole.b, `${JSON.stringify(kind)}: the same weights`);
      t.equal(steps, 3);
      const operations = (entries: readonly (readonly [string, number])[]) =>
        entries.filter(([route]) => ['forward_backward', 'optim_step'].includes(route));
      t.same(operations(log), operations(whole.log), 'the same operations, each once');
    }
  },
);

t.test('a step is submitted before the results of the previous one arrive', { skip }, async t => {
  const server = await referenceServer(t, t.testdir());
  const proxy = await faultyProxy(t, server.url);
  const policy = await tinkerPolicy(t, proxy.url);
  const sequences = await playTinker(policy, 2);
  proxy.seen.length = 0;
  proxy.fault({ route: 'retrieve_future', times: 6, status: 408, body: '{"type": "try_again"}' });
  await Promise.all([policy.update({ sequences }, settings), policy.update({ sequences }, settings)]);
  const submitted = proxy.seen.filter(route => route !== 'retrieve_future' && route !== 'session_heartbeat');
  t.same(submitted, ['forward_backward', 'optim_step', 'forward_backward', 'optim_step']);
  const lastSubmission = proxy.seen.lastIndexOf('optim_step');
  t.ok(proxy.seen.slice(lastSubmission).filter(route => route === 'retrieve_future').length >= 4);
  t.equal(policy.version, 2);
  // The gradient by log-probabilities is of the weights that the step before left.
  const mixed = await Promise.all([
    policy.update({ sequences }, custom),
    policy.update({ sequences }, custom),
  ]);
  t.not(mixed[0]['actor/ppo_kl'], mixed[1]['actor/ppo_kl']);
});

t.test('the first samples of a policy, all at once, are from one sampler', { skip }, async t => {
  const { url, state } = await referenceServer(t, t.testdir());
  await playTinker(await tinkerPolicy(t, url), 6);
  const { log } = await state();
  t.equal(log.filter(([route]) => route === 'save_weights_for_sampler').length, 1);
});

t.test('refusals say what to do, and end at once', { skip }, async t => {
  const { url } = await referenceServer(t, t.testdir());
  const proxy = await faultyProxy(t, url);
  const policy = await tinkerPolicy(t, proxy.url);
  const sequences = await playTinker(policy, 2);
  const score = (fault: Omit<Fault, 'route'>, route = 'forward_backward') => {
    proxy.fault({ route, ...fault });
    return policy.score(sequences);
  };
  const detail = (text: string) => JSON.stringify({ detail: text });
  const failing: readonly (readonly [RegExp, Omit<Fault, 'route'>, string?])[] = [
    [
      /forward failed \(user\)|failed \(user\): out of range/,
      { body: '{"error": "out of range", "category": "user"}' },
      'retrieve_future',
    ],
    [
      /status 410: gone.*resume the run from its last checkpoint/,
      { status: 410, body: detail('gone') },
      'retrieve_future',
    ],
  ];
  for (const [message, fault, route] of failing)
    await t.rejects(score(fault, route), { name: 'TinkerError', message });
  const refusing: readonly (readonly [RegExp, Omit<Fault, 'route'>])[] = [
    [/status 402: no funds.*no credit left.*resume the run/, { status: 402, body: detail('no funds') }],
    [/status 401.*policy\.tinker\.token_env/, { status: 401, body: detail('who?') }],
    [/status 404: model retired.*has retired it/, { status: 404, body: detail('model retired') }],
    [/status 400: \[\{"loc":"data"\}\]/, { status: 400, body: '{"detail": [{"loc": "data"}]}' }],
    [
      /status 429: quota.*quota is used up/,
      { status: 429, body: detail('quota'), headers: { 'x-should-retry': 'false' } },
    ],
    [/the reply has no request_id/, { body: '{}' }],
  ];
  for (const [message, fault] of refusing) {
    const before = performance.now();
    const own = await TinkerPolicy.open(tinkerOptions(proxy.url));
    proxy.fault({ route: 'forward_backward', ...fault });
    await t.rejects(own.score(sequences), { name: 'TinkerError', message });
    t.ok(performance.now() - before < 2_500);
    await t.rejects(own.score(sequences), { message }, 'nothing is sent after a number that is missing');
    await own.close();
  }
  const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 3, stopTokenIds: [] };
  for (const [message, fault] of refusing.slice(0, 3)) {
    proxy.fault({ route: 'asample', ...fault });
    const sample = policy.generate({ sequenceId: 500, append: [1], sampling, seed: 1 });
    await t.rejects(sample, { message }, 'a refused sample ends the run with the same words');
    policy.release(500);
  }
  const away = await TinkerPolicy.open(
    tinkerOptions(proxy.url, { retry: { baseMs: 5, maxDelayMs: 20, patienceMs: 300 } }),
  );
  proxy.fault({ route: 'forward_backward', times: 1e6, status: 429, body: detail('tokens per day') });
  await t.rejects(away.score(sequences), {
    message: /was not available for 0\.\d s: .*tokens per day.*quota/,
  });
  await away.close();
});

t.test(
  'results that are malformed, of wrong lengths or not finite are refused by name',
  { skip },
  async t => {
    const { url } = await referenceServer(t, t.testdir());
    const proxy = await faultyProxy(t, url);
    const policy = await tinkerPolicy(t, proxy.url);
    const sequences = await playTinker(policy, 2);
    const changed = (change: (logprobs: Float32Array) => Float32Array) => (reply: Buffer) => {
      const { outputs, metrics } = decodeForwardBackwardOutput(reply);
      return encodeForwardBackwardOutput({
        outputs: outputs.map(({ logprobs }) => ({ logprobs: change(logprobs) })),
        metrics,
      });
    };
    const replies: readonly (readonly [RegExp, (reply: Buffer) => Uint8Array])[] = [
      [/is not a ForwardBackwardOutput|results of 0 datums/, reply => reply.subarray(0, 20)],
      [
        /results of 1 datums came, sent were 2/,
        reply => {
          const { outputs, metrics } = decodeForwardBackwardOutput(reply);
          return encodeForwardBackwardOutput({ outputs: outputs.slice(1), metrics });
        },
      ],
      [/datum 0 has \d+ tokens, but \d+ logprobs came/, changed(logprobs => logprobs.subarray(1))],
      [/http:.* returned NaN as log-probability of token \d+/, changed(logprobs => logprobs.fill(NaN))],
      [/returned 0\.5 as log-probability/, changed(logprobs => logprobs.fill(0.5))],
      [/returned -Infinity as log-probability/, changed(logprobs => logprobs.fill(-Infinity))],
    ];
    for (const [message, change] of replies) {
      proxy.fault({ route: 'retrieve_future', change });
      await t.rejects(policy.score(sequences), { name: 'TinkerError', message });
    }
    const norm = (reply: Buffer) => {
      const { outputs } = decodeForwardBackwardOutput(reply);
      return encodeForwardBackwardOutput({ outputs, metrics: { 'grad_norm:mean': NaN } });
    };
    proxy.fault({
      route: 'retrieve_future',
      times: 2,
      change: reply => (reply[0] === 10 ? norm(reply) : reply),
    });
    await t.rejects(policy.update({ sequences }, settings), {
      message: /returned NaN as the gradient's norm/,
    });
    t.equal(policy.version, 0);
    proxy.fault({ route: 'retrieve_future', body: '{"path": "x"}' });
    await t.rejects(policy.score(sequences), { message: /no protobuf message came, but \{"path":"x"\}/ });

    const prompt = (values: readonly number[] | null) => () =>
      encodeSampleResponse({
        sequences: [],
        promptLogprobs: values && Float32Array.from(values),
        topkPromptLogprobs: null,
      });
    const { length } = sequences[0].tokenIds;
    for (const [message, change] of [
      [/no log-probabilities of a prompt of \d+ tokens came/, prompt(null)],
      [/: 1 log-probabilities of a prompt of \d+ tokens/, prompt([-1])],
      [/http:.* returned NaN as log-probability of token/, prompt(new Array(length).fill(NaN))],
    ] as const) {
      proxy.fault({ route: 'retrieve_future', change });
      await t.rejects(policy.scoreReference(sequences.slice(0, 1)), { name: 'TinkerError', message });
    }

    const generate = () =>
      policy.generate({
        sequenceId: 77,
        append: [1],
        sampling: { temperature: 1, topK: 0, topP: 1, maxNewTokens: 3, stopTokenIds: [] },
        seed: 1,
      });
    const sampled = (tokens: readonly number[], logprobs: readonly number[] | null) => () =>
      encodeSampleResponse({
        sequences: [
          {
            stopReason: 'length',
            tokens: Int32Array.from(tokens),
            logprobs: logprobs && Float32Array.from(logprobs),
          },
        ],
        promptLogprobs: null,
        topkPromptLogprobs: null,
      });
    for (const reply of [
      sampled([5], [NaN]),
      sampled([5, 6], [-1]),
      sampled([99], [-1]),
      sampled([], []),
      sampled([5], null),
    ]) {
      proxy.fault({ route: 'retrieve_future', change: reply });
      const { tokenIds, logProbs } = await generate();
      t.equal(tokenIds.length, logProbs.length, 'a sample that no server may send is requested again');
      policy.release(77);
    }
    proxy.fault({ route: 'retrieve_future', status: 410, body: '{"detail": "gone"}' });
    t.ok((await generate()).tokenIds.length > 0, 'a sample that the server dropped is taken again');
    proxy.fault({ route: 'retrieve_future', times: 12, change: sampled([5], [NaN]) });
    t.equal((await playTinker(policy, 12)).length, 12, 'many wrong samples at once are taken again');
    proxy.fault({ route: 'retrieve_future', times: 1e6, change: sampled([5], [NaN]) });
    policy.release(77);
    await t.rejects(generate(), { message: /^http:.*: NaN is not a log-probability$/ });
  },
);

t.test('a batch that cannot be sent is refused before anything is sent', { skip }, async t => {
  const { url } = await referenceServer(t, t.testdir());
  const proxy = await faultyProxy(t, url);
  const policy = await tinkerPolicy(t, proxy.url);
  const sequences = await playTinker(policy, 2);
  proxy.seen.length = 0;
  const [first] = sequences;
  const with_ = (change: object) => policy.update({ sequences: [{ ...first, ...change }] }, settings);
  await t.rejects(
    with_({ advantages: first.advantages.map(() => NaN) }),
    /advantages has NaN: nothing was sent/,
  );
  await t.rejects(
    with_({ tokenIds: first.tokenIds.map(() => 99) }),
    /token id 99 at 0 is outside the vocabulary of 24/,
  );
  await t.rejects(with_({ lossMask: new Uint8Array(first.tokenIds.length) }), /nothing to train on/);
  await t.rejects(with_({ grammar: 'answer' }), /without a grammar/);
  const entropy = settingsWith({ entropyCoefficient: 0.1, dualClip: 0 });
  await t.rejects(policy.update({ sequences }, entropy), /loss\.entropy_coefficient is 0\.1/);
  await t.rejects(
    policy.update({ sequences }, { ...settings, temperature: 0.5 }),
    /temperature 1, not at 0\.5/,
  );
  await t.rejects(policy.score(sequences, { temperature: 1, squares: true }), /no sums over the vocabulary/);
  await t.rejects(policy.decomposeGradients(), /diagnostics\.gradients/);
  t.same(proxy.seen, []);
  t.equal(policy.version, 0);
});

t.test(
  'a killed run continues from its folder at a server that was killed too: no step is lost or doubled',
  { skip },
  async t => {
    const folder = t.testdir({ whole: {}, broken: {}, run: {} });
    const steps = async (policy: TinkerPolicy, count: number) => {
      for (let step = 0; step < count; step++) {
        await policy.sampler.publish();
        await policy.update({ sequences: await playTinker(policy, 4) }, settings);
      }
    };
    const whole = await referenceServer(t, join(folder, 'whole'));
    await steps(await tinkerPolicy(t, whole.url), 4);

    const first = await referenceServer(t, join(folder, 'broken'));
    const killed = await TinkerPolicy.open(tinkerOptions(first.url));
    await steps(killed, 2);
    await killed.save(join(folder, 'run'));
    await steps(killed, 1);
    await first.kill();
    await killed.close();
    const second = await referenceServer(t, join(folder, 'broken'));
    const resumed = await tinkerPolicy(t, second.url, { folder: join(folder, 'run') });
    t.equal(resumed.version, 2);
    await steps(resumed, 2);
    const weights = async ({ state }: typeof whole) => Object.values((await state()).models).at(-1)!;
    t.same(await weights(second), await weights(whole), 'the weights of a run that was not killed');
    t.equal((await weights(second)).steps, 4);

    const other = (over: object) =>
      TinkerPolicy.open(tinkerOptions(second.url, { folder: join(folder, 'run'), ...over }));
    await t.rejects(
      other({ lora: { rank: 8, seed: 1, attention: true, mlp: true } }),
      /policy\.lora\.rank is 8, but .* has rank 4/,
    );
    const path = (await readTinkerCheckpoint(join(folder, 'run')))!.path;
    t.match(path, /^tinker:\/\/S\d+:train:1\/weights\/v000002$/);
  },
);

t.test(
  'checkpoints that nothing names any more are deleted, and one of the same weights is not written twice',
  { skip },
  async t => {
    const folder = t.testdir({ server: {}, run: {} });
    const { url } = await referenceServer(t, join(folder, 'server'));
    const run = join(folder, 'run');
    const policy = await tinkerPolicy(t, url, { keepCheckpoints: 2, run });
    const sequences = await playTinker(policy, 2);
    const save = async (name: string) => {
      await policy.save(join(folder, 'run', name));
      return (await readTinkerCheckpoint(join(folder, 'run', name)))!.path;
    };
    t.equal(await save('first'), await save('again'));
    mkdirSync(join(run, 'torn.partial'));
    writeFileSync(join(run, 'torn.partial', 'tinker.json'), '{"form');
    for (let step = 1; step <= 4; step++) {
      await policy.update({ sequences }, settings);
      rmSync(join(run, `step-${step - 2}`), { recursive: true, force: true });
      await save(`step-${step}`);
    }
    const kept = readdirSync(join(folder, 'server')).filter(name => name.endsWith('.npz'));
    t.same(kept.map(name => name.slice(-11, -4)).sort(), ['v000000', 'v000003', 'v000004']);
    const proxied = await faultyProxy(t, url);
    const other = await tinkerPolicy(t, proxied.url);
    for (const path of [
      '',
      'weights',
      'tinker://m',
      'tinker://m/../../x',
      'tinker://../x',
      'tinker://m//x',
    ]) {
      proxied.fault({ route: 'retrieve_future', body: JSON.stringify({ path }) });
      await t.rejects(other.save(join(folder, 'run', 'bad')), {
        message: /save_weights: .* (?:is not a path of a checkpoint|has no path)/,
      });
    }
    const file = join(folder, 'run', 'first', 'tinker.json');
    const whole = readFileSync(file, 'utf8');
    writeFileSync(file, whole.replace(/"tinker:[^"]*"/, '"tinker://a/.."'));
    await t.rejects(policy.load(join(folder, 'run', 'first')), /tinker\.json: \/path must match/);
    writeFileSync(file, whole);
    const before = await policy.score(sequences);
    await policy.resetOptimizer();
    t.same(await policy.score(sequences), before, 'a new optimizer, the same weights');
    await policy.load(join(folder, 'run', 'first'));
    t.equal(policy.version, 0);
  },
);

t.test(
  'a server that is not what the settings say, or lacks the model, is found at the start',
  { skip },
  async t => {
    const [sums, means] = [
      await referenceServer(t, t.testdir()),
      await referenceServer(t, t.testdir(), 'mean'),
    ];
    await t.rejects(
      TinkerPolicy.open(tinkerOptions(sums.url, { server: 'skyrl-jax' })),
      /policy\.tinker\.server is skyrl-jax, but the server sums over datums.*service or skyrl or ragen/,
    );
    await t.rejects(
      TinkerPolicy.open(tinkerOptions(means.url, { server: 'service' })),
      /the server averages over datums.*Set it to skyrl-jax/,
    );
    await t.rejects(
      TinkerPolicy.open(tinkerOptions(sums.url, { baseModel: 'old' })),
      /does not train old, or no longer does; it trains bigram/,
    );
    await t.rejects(
      TinkerPolicy.open(tinkerOptions(sums.url, { maxSequenceLength: 300 })),
      /policy\.context is 300, and bigram at .* holds 200/,
    );
    const { log } = await sums.state();
    t.same(
      log.filter(([what]) => what === 'open gradients').map(([, datums]) => datums),
      [],
      'a wrong profile leaves its probe to the end of the session',
    );
    const good = await TinkerPolicy.open(tinkerOptions(sums.url));
    await good.close();
    t.same(
      (await sums.state()).log.filter(([what]) => what === 'open gradients'),
      [
        ['open gradients', 0],
        ['open gradients', 0],
      ],
    );
    t.same(Object.keys((await sums.state()).models).length, 1, 'models are unloaded');
  },
);

t.test('a session that the server ended fails at once, with that reason', { skip }, async t => {
  const { url } = await referenceServer(t, t.testdir());
  const proxy = await faultyProxy(t, url);
  const policy = await tinkerPolicy(t, proxy.url, { heartbeatMs: 30 });
  const sequences = await playTinker(policy, 2);
  proxy.fault({ route: 'session_heartbeat', status: 410, body: '{"detail": "expired"}' });
  await new Promise(resolve => setTimeout(resolve, 200));
  await t.rejects(policy.score(sequences), {
    message: /the server ended the session.*resume the run.*expired/,
  });
});

t.test(
  'tokens and their cost are counted over the whole run; texts end responses; the reference is the base',
  { skip },
  async t => {
    const folder = t.testdir();
    const { url } = await referenceServer(t, folder);
    const prices = { prefill: 1, sample: 10, train: 100 };
    const decode = (ids: Int32Array) => Array.from(ids, id => `<${id}>`).join('');
    const policy = await tinkerPolicy(t, url, { prices, decode });
    const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 30, stopTokenIds: [] };
    const whole = await policy.generate({ sequenceId: 1, append: [1, 2, 3], sampling, seed: 5 });
    const text = `><${whole.tokenIds[2]}`;
    const cut = await policy.generate({
      sequenceId: 2,
      append: [1, 2, 3],
      sampling: { ...sampling, stopStrings: [text] },
      seed: 5,
    });
    t.equal(cut.finishReason, 'stop');
    t.ok(cut.tokenIds.length <= 3 && decode(cut.tokenIds).includes(text));
    t.same(cut.tokenIds, whole.tokenIds.slice(0, cut.tokenIds.length));
    const streamed: number[] = [];
    await policy.generate(
      { sequenceId: 3, append: [4], sampling, seed: 1 },
      ({ tokenId }) => void streamed.push(tokenId),
    );
    t.equal(streamed.length, 30);
    const metrics = policy.sampler.takeMetrics();
    t.match(metrics, { 'tinker/prefill_tokens': 7, 'tinker/sampled_tokens': 90, 'tinker/trained_tokens': 0 });
    t.equal(metrics['tinker/cost'], (7 + 900) / 1e6);
    await t.rejects(
      policy.generate({ sequenceId: 4, append: [1], sampling: { ...sampling, minP: 0.1 }, seed: 1 }),
      /without min_p/,
    );

    const sequences = await playTinker(policy, 3);
    await policy.update({ sequences }, settings);
    await policy.save(join(folder, 'run'));
    t.ok(existsSync(join(folder, 'run', 'tinker.json')));
    t.notMatch(readFileSync(join(folder, 'run', 'tinker.json'), 'utf8'), /tml-/);
    const resumed = await tinkerPolicy(t, url, { prices, folder: join(folder, 'run') });
    t.ok(resumed.sampler.takeMetrics()['tinker/cost'] > metrics['tinker/cost']);

    const [now, base] = [await policy.score(sequences), await policy.scoreReference(sequences)];
    const fresh = await (await tinkerPolicy(t, url)).score(sequences);
    const far = (a: typeof now, b: typeof now) =>
      Math.max(
        ...a.flatMap(({ logProbs }, i) => Array.from(logProbs, (x, k) => Math.abs(x - b[i].logProbs[k]))),
      );
    t.ok(far(base, fresh) < 1e-6 && far(now, fresh) > 1e-3);
    const request = { prompt: Int32Array.of(1, 2), continuations: [Int32Array.of(3, 4), Int32Array.of(5)] };
    const [sums] = await policy.scoreContinuations([request]);
    const [alone] = await policy.score([
      { tokenIds: Int32Array.of(1, 2, 3, 4), lossMask: Uint8Array.of(0, 0, 1, 1) },
    ]);
    t.ok(Math.abs(sums[0] - alone.logProbs.reduce((a, b) => a + b, 0)) < 1e-5 && sums.length === 2);
  },
);

import t from 'tap';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import type { LocalPolicy } from '../../policy/local-policy.ts';
import { type AdapterWeights, SamplerPool, type SampleTask, type SamplingClient } from './samplers.ts';

const LORA: LoraConfig = { rank: 1, alpha: 1, rankStabilized: false, dora: false, modules: ['q_proj'] };
const task: SampleTask = {
  prompt: Int32Array.of(1),
  samples: 1,
  seed: 0,
  sampling: { temperature: 1, topK: 0, topP: 1, maxNewTokens: 1, stopTokenIds: [] },
  promptLogProbs: false,
  topPromptLogProbs: 0,
};
const adapter = (key: string): AdapterWeights => ({ key, lora: LORA, load: async () => {} });
const never = new AbortController().signal;

const client = (owner: string): SamplingClient => ({ owner });
const one = client('one');

/** A pool of policies with samples that the test ends. */
function poolOf(maxPolicies: number, maxSequences = 9) {
  const running: (() => void)[] = [];
  const policy = {
    release: () => {},
    close: async () => {},
    generate: () =>
      new Promise(resolve => {
        const done = { tokenIds: Int32Array.of(2), logProbs: Float32Array.of(-1), finishReason: 'stop' };
        running.push(() => resolve(done));
      }),
  } as unknown as LocalPolicy;
  return { pool: new SamplerPool(policy, async () => policy, { maxPolicies, maxSequences }), running };
}

const turns = async () => {
  for (let i = 0; i < 100; i++) await Promise.resolve();
};

t.test('requests of one adapter run together, and those of others in the order that they came', async t => {
  const { pool, running } = poolOf(1);
  const samples = [1, 2].map(() => pool.sample(one, adapter('a'), task, never));
  await turns();
  t.equal(running.length, 2, 'both requests of the loaded adapter run');
  for (const key of ['b', 'a']) samples.push(pool.sample(one, adapter(key), task, never));
  await turns();
  t.equal(running.length, 2, 'the others wait for the policy');
  for (const end of running.splice(0)) end();
  await turns();
  t.equal(running.length, 1, 'then the other adapter has it');
  running.splice(0)[0]();
  await turns();
  running[0]();
  await Promise.all(samples);
  await pool.close();
});

t.test(
  'a request that is aborted while it waits ends at once, and those behind it get their turn',
  async t => {
    const { pool, running } = poolOf(1);
    const first = pool.sample(one, adapter('a'), task, never);
    await turns();
    const gone = [new AbortController(), new AbortController()];
    const waits = gone.map(({ signal }, i) => pool.sample(one, adapter(`gone ${i}`), task, signal));
    const ends = Promise.all(waits.map(wait => wait.catch((error: Error) => error.message)));
    const last = pool.sample(one, adapter('b'), task, never);
    await turns();
    for (const controller of gone) controller.abort(new Error('the session has ended'));
    t.same(await Promise.race([ends, turns().then(() => 'they wait')]), [
      'the session has ended',
      'the session has ended',
    ]);
    t.equal(running.length, 1, 'the first continues');
    running.splice(0)[0]();
    await first;
    await turns();
    t.equal(running.length, 1, 'the last has the policy');
    running[0]();
    await last;
    await t.rejects(pool.sample(one, adapter('c'), task, gone[0].signal), {
      message: 'the session has ended',
    });
    await pool.close();
  },
);

t.test('keys take turns for the sequences of a policy, and so do the clients of a key', async t => {
  const { pool, running } = poolOf(1, 2);
  const ended: string[] = [];
  const samples = (name: string, from: SamplingClient, count: number) =>
    pool.sample(from, null, { ...task, samples: count }, never).then(() => ended.push(name));
  const [first, sibling, other] = [one, client('one'), client('other')];
  const all = [samples('flood', first, 100), samples('sibling', sibling, 1), samples('other', other, 1)];
  for (let end = 0; end < 8; end++) {
    await turns();
    t.equal(running.length, 2, 'as many as the policy has at once');
    running.shift()!();
  }
  await turns();
  t.same(ended.sort(), ['other', 'sibling'], 'after a few of the hundred that came before');
  while (running.length > 0) {
    for (const end of running.splice(0)) end();
    await turns();
  }
  await Promise.all(all);
  await pool.close();
});

t.test('a key with many samples leaves sequences to other keys', async t => {
  const { pool, running } = poolOf(1, 32);
  const flood = pool.sample(one, null, { ...task, samples: 100 }, never);
  await turns();
  t.equal(running.length, 30, 'of 32');
  const other = pool.sample(client('other'), null, { ...task, samples: 2 }, never);
  await turns();
  t.equal(running.length, 32);
  for (const end of running.splice(-2)) end();
  t.equal((await other).sequences.length, 2, 'while all of the first key run');
  while (running.length > 0) {
    for (const end of running.splice(0)) end();
    await turns();
  }
  await flood;
  await pool.close();
});

t.test('a key with many adapters leaves a policy to other keys', async t => {
  const { pool, running } = poolOf(3);
  const samples = ['a', 'b', 'c', 'd'].map(key => pool.sample(one, adapter(key), task, never));
  await turns();
  t.equal(running.length, 2, 'of three policies');
  const other = client('other');
  for (const key of ['e', 'e']) samples.push(pool.sample(other, adapter(key), task, never));
  await turns();
  t.equal(running.length, 4, 'the other key has one');
  while (running.length > 0) {
    for (const end of running.splice(0)) end();
    await turns();
  }
  await Promise.all(samples);
  await pool.close();
});

t.test('a policy that cannot be opened costs its request alone', async t => {
  const policy = {
    release: () => {},
    close: async () => {},
  } as unknown as LocalPolicy;
  let fails = true;
  const create = async () => {
    if (fails) throw new Error('no memory');
    return policy;
  };
  const pool = new SamplerPool(policy, create, { maxPolicies: 1, maxSequences: 1 });
  await t.rejects(pool.sample(one, adapter('a'), task, never), { message: 'no memory' });
  fails = false;
  await t.rejects(pool.sample(one, adapter('a'), task, never), { message: /generate is not a function/ });
  await pool.close();
});

t.test('keys take turns in scores, of 2,048 tokens each', async t => {
  const scored: string[] = [];
  let end: (() => void) | undefined;
  const policy = {
    release: () => {},
    close: async () => {},
    generate: async () => ({ tokenIds: Int32Array.of(2), logProbs: Float32Array.of(-1) }),
    score: async (sequences: { tokenIds: Int32Array }[]) => {
      scored.push(sequences.map(({ tokenIds }) => `${tokenIds[0]}:${tokenIds.length}`).join());
      await new Promise<void>(resolve => {
        end = resolve;
      });
      return sequences.map(({ tokenIds }) => ({ logProbs: Float32Array.from(tokenIds) }));
    },
  } as unknown as LocalPolicy;
  const pool = new SamplerPool(policy, async () => policy, { maxPolicies: 1, maxSequences: 64 });
  const cold = (first: number, length: number, samples: number): SampleTask => {
    const sampling = { ...task.sampling, temperature: 0.5 };
    return { ...task, prompt: Int32Array.from({ length }, () => first), samples, sampling };
  };
  const gone = new AbortController();
  const flood = [3, 3].map(() => pool.sample(one, null, cold(1, 999, 3), never));
  const aborted = pool.sample(one, null, cold(4, 999, 3), gone.signal);
  await turns();
  gone.abort(new Error('the session has ended'));
  const long = pool.sample(client('two'), null, cold(2, 3000, 1), never);
  while (scored.length < 5) {
    await turns();
    end?.();
  }
  const [{ sequences }] = await Promise.all([flood[0], flood[1], long]);
  await t.rejects(aborted, { message: 'the session has ended' });
  t.same(scored, ['1:1000,1:1000', '1:1000,1:1000', '2:3001', '1:1000', '1:1000']);
  t.same(
    sequences.map(({ logprobs }) => [...logprobs!]),
    [[2], [2], [2]],
  );
  await pool.close();
});

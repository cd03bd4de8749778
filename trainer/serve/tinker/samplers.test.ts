import t from 'tap';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import type { LocalPolicy } from '../../policy/local-policy.ts';
import { type AdapterWeights, SamplerPool, type SampleTask } from './samplers.ts';

const LORA: LoraConfig = { rank: 1, alpha: 1, rankStabilized: false, dora: false, modules: ['q_proj'] };
const task: SampleTask = {
  prompt: Int32Array.of(1),
  samples: 1,
  seed: 0,
  sampling: { temperature: 1, topK: 0, topP: 1, maxNewTokens: 1, stopTokenIds: [] },
  promptLogProbs: false,
  topPromptLogProbs: 0,
};
const adapter = (key: string): AdapterWeights => ({ key, lora: LORA, read: async () => new Float32Array() });
const never = new AbortController().signal;

/** A pool of one policy with samples that the test ends. */
function poolOfOne() {
  const running: (() => void)[] = [];
  const policy = {
    takeWeights: async () => {},
    release: () => {},
    close: async () => {},
    generate: () =>
      new Promise(resolve => {
        const done = { tokenIds: Int32Array.of(2), logProbs: Float32Array.of(-1), finishReason: 'stop' };
        running.push(() => resolve(done));
      }),
  } as unknown as LocalPolicy;
  return { pool: new SamplerPool(policy, async () => policy, 1), running };
}

const turns = async () => {
  for (let i = 0; i < 100; i++) await Promise.resolve();
};

t.test('requests of one adapter run together, and those of others in the order that they came', async t => {
  const { pool, running } = poolOfOne();
  const samples = [pool.sample(adapter('a'), task, never), pool.sample(adapter('a'), task, never)];
  await turns();
  t.equal(running.length, 2, 'both requests of the loaded adapter run');
  for (const key of ['b', 'a']) samples.push(pool.sample(adapter(key), task, never));
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
    const { pool, running } = poolOfOne();
    const first = pool.sample(adapter('a'), task, never);
    await turns();
    const gone = [new AbortController(), new AbortController()];
    const waits = gone.map(({ signal }, i) => pool.sample(adapter(`gone ${i}`), task, signal));
    const ends = Promise.all(waits.map(wait => wait.catch((error: Error) => error.message)));
    const last = pool.sample(adapter('b'), task, never);
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
    await t.rejects(pool.sample(adapter('c'), task, gone[0].signal), { message: 'the session has ended' });
    await pool.close();
  },
);

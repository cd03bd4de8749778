import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { ActorCritic, CRITIC_FOLDER } from './actor-critic.ts';
import type { LocalPolicyOptions } from './local-policy.ts';
import { closing, config, play, policyWith, settingsWith } from './testing.ts';

const lora = { rank: 2, alpha: 4, rankStabilized: false, modules: ['q_proj', 'up_proj'] as const };
const regression = settingsWith({ value: { coefficient: 1, clip: 0 } }, { learningRate: 0.03 });
const together = { ...settingsWith(), critic: regression.optimizer };

const STEPS = 50;

type Closing = Parameters<typeof closing>[0];

async function pairWith(t: Closing, options: Partial<LocalPolicyOptions> = {}): Promise<ActorCritic> {
  const actor = await closing(t, policyWith({ ...options, valueHead: false }));
  const model = await actor.weightsNow();
  const critic = await closing(t, policyWith({ ...options, lora: undefined, model, critic: true }));
  return new ActorCritic(actor, critic);
}

t.test('a critic begins as the policy, learns returns, and leaves the policy as it is', async t => {
  const sequences = await play(await closing(t, policyWith()), 6);
  for (const options of [{}, { lora, model: { ...config, tiedEmbeddings: false } }]) {
    const { actor, critic } = await pairWith(t, options);
    t.equal(critic.config.tiedEmbeddings, true, 'it has no output layer');
    const scores = await actor.score(sequences);
    t.ok((await critic.estimate(sequences)).every(values => values.every(value => value === 0)));
    const losses: number[] = [];
    for (let step = 0; step < STEPS; step++) {
      losses.push((await critic.update({ sequences }, regression))['critic/vf_loss']);
    }
    t.ok(losses[STEPS - 1] < 0.2 * losses[0], `the loss falls from ${losses[0]} to ${losses[STEPS - 1]}`);
    const estimates = await critic.estimate(sequences);
    const off = sequences.flatMap(({ mask, returns }, i) =>
      Array.from(mask).flatMap((on, at) => (on ? [(estimates[i][at] - returns![at]) ** 2 / 2] : [])),
    );
    const mean = off.reduce((sum, x) => sum + x, 0) / off.length;
    t.ok(Math.abs(mean - losses[STEPS - 1]) < 0.2 * losses[0], 'what it estimates is what it learnt');
    (await actor.score(sequences)).forEach(({ logProbs }, i) => {
      t.same(logProbs, scores[i].logProbs);
    });
  }
});

t.test('a critic needs returns, and its own optimiser', async t => {
  const pair = await pairWith(t);
  const [{ returns, ...sequence }] = await play(await closing(t, policyWith()), 1);
  await t.rejects(pair.update({ sequences: [{ ...sequence, returns }] }, settingsWith()), /its optimiser/);
  await t.rejects(pair.update({ sequences: [sequence] }, together), /a critic learns returns/);
  await t.rejects(pair.actor.estimate([sequence]), /no value head/);
});

t.test('policy and critic are saved and go on as if they had never stopped', async t => {
  const sequences = await play(await closing(t, policyWith()), 6);
  const folder = t.testdir();
  for (const options of [{}, { lora }]) {
    const whole = await pairWith(t, options);
    const metrics = await whole.update({ sequences }, together);
    t.match(metrics, { 'actor/lr': 1e-3, 'critic/lr': 0.03 });
    t.ok(metrics['critic/grad_norm'] > 0 && metrics['actor/grad_norm'] > 0);
    const half = join(folder, `half-${'lora' in options}`);
    await whole.save(half);
    const adapters = join(half, CRITIC_FOLDER, 'adapter_model.safetensors');
    t.equal(existsSync(adapters), 'lora' in options);
    const resumed = await pairWith(t, options);
    await resumed.load(half);
    const files = ['value_head.safetensors', 'optimizer.safetensors'];
    const ends = await Promise.all(
      [whole, resumed].map(async (pair, n) => {
        const end = join(folder, `end-${'lora' in options}-${n}`);
        const after = await pair.update({ sequences }, together);
        await pair.save(end);
        const weights = 'lora' in options ? 'adapter_model.safetensors' : 'model.safetensors';
        const places = [
          join(end, weights),
          ...[weights, ...files].map(name => join(end, CRITIC_FOLDER, name)),
        ];
        return { after, contents: await Promise.all(places.map(place => readFile(place))) };
      }),
    );
    t.same(ends[0].after, ends[1].after);
    ends[0].contents.forEach((content, i) => {
      t.ok(content.equals(ends[1].contents[i]), `file ${i}`);
    });
    const [given, wanted] = [await resumed.estimate(sequences), await whole.estimate(sequences)];
    t.same(given, wanted);
  }
});

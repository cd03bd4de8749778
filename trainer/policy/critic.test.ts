import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { CRITIC_FOLDER, type LocalPolicyOptions } from './local-policy.ts';
import { closing, config, play, policyWith, settingsWith } from './policies.test-data.ts';

const lora = {
  rank: 2,
  alpha: 4,
  rankStabilized: false,
  dora: false,
  modules: ['q_proj', 'up_proj'] as const,
};
const regression = settingsWith({ value: { coefficient: 1, clip: 0 } }, { learningRate: 0.03 });
const together = { ...settingsWith(), critic: regression.optimizer };

const STEPS = 40;

type Closing = Parameters<typeof closing>[0];

async function pairWith(t: Closing, options: Partial<LocalPolicyOptions> = {}) {
  const actor = await closing(t, policyWith({ ...options, valueHead: false }));
  const model = await actor.weightsNow();
  const critic = await closing(t, policyWith({ ...options, lora: undefined, model, critic: true }));
  actor.attachCritic(critic);
  return { actor, critic };
}

const sequences = await play(await closing(t, policyWith()), 6);

for (const options of [{}, { lora, model: { ...config, tiedEmbeddings: false } }]) {
  const adapted = 'lora' in options;
  t.test(adapted ? 'adapters' : 'all weights', async t => {
    const { actor, critic } = await pairWith(t, options);
    await t.test('a critic begins as the policy, learns returns, and leaves the policy as it is', async t => {
      t.equal(critic.config.tiedEmbeddings, true, 'it has no output layer');
      const scores = await actor.score(sequences);
      t.ok((await critic.estimate(sequences)).every(values => values.every(value => value === 0)));
      const losses: number[] = [];
      for (let step = 0; step < STEPS; step++) {
        losses.push((await critic.update({ sequences }, regression))['critic/vf_loss']);
      }
      const last = losses[STEPS - 1];
      t.ok(last < 0.2 * losses[0], `the loss falls from ${losses[0]} to ${last}`);
      const estimates = await critic.estimate(sequences);
      const off = sequences.flatMap(({ lossMask, returns }, i) =>
        Array.from(lossMask).flatMap((on, at) => (on ? [(estimates[i][at] - returns![at]) ** 2 / 2] : [])),
      );
      const mean = off.reduce((sum, x) => sum + x, 0) / off.length;
      t.ok(Math.abs(mean - last) < 0.2 * losses[0], 'what it estimates is what it learned');
      (await actor.score(sequences)).forEach(({ logProbs }, i) => {
        t.same(logProbs, scores[i].logProbs);
      });
    });

    await t.test('a critic needs returns and a separate optimizer', async t => {
      const [{ returns, ...sequence }] = sequences;
      await t.rejects(actor.update({ sequences }, settingsWith()), /its optimizer/);
      await t.rejects(actor.update({ sequences: [sequence] }, together), /a critic learns returns/);
      const alone = await closing(t, policyWith({ ...options, valueHead: false }));
      await t.rejects(alone.estimate([sequence]), /no value head/);
    });

    await t.test('both are saved and continue as if they had never stopped', async t => {
      const folder = t.testdir();
      const metrics = await actor.update({ sequences }, together);
      t.match(metrics, { 'actor/lr': 1e-3, 'critic/lr': 0.03 });
      t.ok(metrics['critic/grad_norm'] > 0 && metrics['actor/grad_norm'] > 0);
      const half = join(folder, 'half');
      await actor.save(half);
      t.equal(existsSync(join(half, CRITIC_FOLDER, 'adapter_model.safetensors')), adapted);
      const { actor: resumed } = await pairWith(t, options);
      await resumed.load(half);
      const weights = adapted ? 'adapter_model.safetensors' : 'model.safetensors';
      const ends = await Promise.all(
        [actor, resumed].map(async (one, n) => {
          const end = join(folder, `end-${n}`);
          const after = await one.update({ sequences }, together);
          await one.save(end);
          const places = [
            join(end, weights),
            ...[weights, 'value_head.safetensors', 'optimizer/optimizer.safetensors'].map(name =>
              join(end, CRITIC_FOLDER, name),
            ),
          ];
          return { after, contents: await Promise.all(places.map(place => readFile(place))) };
        }),
      );
      t.same(ends[0].after, ends[1].after);
      ends[0].contents.forEach((content, i) => {
        t.ok(content.equals(ends[1].contents[i]), `file ${i}`);
      });
      t.same(await resumed.estimate(sequences), await actor.estimate(sequences));
    });
  });
}

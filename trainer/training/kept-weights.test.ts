import { cpSync, existsSync, readdirSync, readFileSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { mergeConfig } from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';
import { AVERAGE_FOLDER } from '../policy/policy-state.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import type { RunFolder } from './run-folder/run-folder.ts';
import { learnedMetrics, MAX_MS, resumeTiny, tinyRuns, trainingRows, weightsOf } from './runs.test-data.ts';

const averageOf = (run: RunFolder) =>
  readFileSync(join(latestCheckpoint(run)!.policy, AVERAGE_FOLDER, 'model.safetensors'));

t.test('weights that are kept next to those that learn', { timeout: MAX_MS }, async t => {
  const { settings, train, trainInTwo } = await tinyRuns(t);

  await t.test('an average changes no training, resumes exactly, and is what the best holds', async t => {
    const learning = { training: { steps: 4, checkpoint_every: 2, validate_every: 4, keep_best: true } };
    const averaged = { ...learning, optimizer: { learning_rate: 1e-2, ema: { decay: 0.5 } } };
    const whole = await train('average', averaged);
    const parted = await trainInTwo('average-parted', averaged, 2);
    const plain = await train('plain', { ...learning, optimizer: { learning_rate: 1e-2 } });
    t.ok(weightsOf(whole).equals(weightsOf(plain)));
    t.ok(weightsOf(parted).equals(weightsOf(whole)));
    t.ok(averageOf(parted).equals(averageOf(whole)));
    t.notOk(averageOf(whole).equals(weightsOf(whole)));
    const best = (run: RunFolder) => readFileSync(join(run.best, 'policy', 'model.safetensors'));
    t.ok(best(whole).equals(averageOf(whole)), 'validated and kept as averaged');
    t.notOk(existsSync(join(whole.best, 'policy', AVERAGE_FOLDER)));
    t.ok(best(plain).equals(weightsOf(plain)));
    // As a kill between the two moves of a replacement leaves it.
    renameSync(whole.best, `${whole.best}.replaced`);
    await resumeTiny(whole, settings('average', averaged));
    t.ok(best(whole).equals(averageOf(whole)), 'comes back when the run is resumed');
  });

  await t.test('a refreshed reference is the policy of its iteration, after a resume, too', async t => {
    const over = {
      policy: { reference_refresh_every: 2 },
      loss: { kl: { coefficient: 0.1 } },
      algorithm: { mini_batch_size: 16 },
      training: { steps: 6, checkpoint_every: 1 },
    };
    const whole = await train('refreshed', over);
    const distances = trainingRows(whole).map(row => row['actor/kl_loss'] > 1e-8);
    t.same(distances, [false, true, false, true, false, true]);
    t.same(readdirSync(whole.references), ['step-000004', 'step-000006'], 'those of the kept checkpoints');
    const parted = await trainInTwo('refreshed-parted', over, 3);
    t.ok(weightsOf(parted).equals(weightsOf(whole)));
  });

  const curricula: Readonly<Record<string, { readonly [key: string]: Json }>> = {
    'a curriculum, asynchronous': {
      asynchronous: { max_staleness: 0 },
      curriculum: {
        stages: [
          { from_step: 1, weights: { Lake: 1 } },
          { from_step: 3, weights: { Lake: 1, Dry: 1 } },
        ],
      },
    },
    'an adaptive curriculum and level replay': { adaptive_curriculum: {}, level_replay: {} },
  };
  for (const [name, rollout] of Object.entries(curricula)) {
    await t.test(`with ${name}, an average and a refreshed reference a run resumes exactly`, async t => {
      const over = {
        tags: { Dry: { env_id: 'FrozenLake-v0', max_turn: 3, config: { success_rate: 1 } } },
        train_tags: ['Lake', 'Dry'],
        rollout,
        policy: { reference_refresh_every: 2 },
        loss: { kl: { coefficient: 0.1 } },
        optimizer: { learning_rate: 1e-2, ema: { decay: 0.5, validate: !('asynchronous' in rollout) } },
        training: { steps: 5, checkpoint_every: 1, validate_every: 2 },
      };
      const whole = await train(`all-${name.length}`, over);
      const parted = await trainInTwo(`all-${name.length}-parted`, over, 3);
      const last = trainingRows(whole).at(-1)!;
      t.ok(last['train/Dry/success'] !== undefined, 'the second tag is played');
      t.ok(weightsOf(parted).equals(weightsOf(whole)));
      t.ok(averageOf(parted).equals(averageOf(whole)));
      t.same(trainingRows(parted).map(learnedMetrics), trainingRows(whole).map(learnedMetrics));
      t.same(readdirSync(parted.references), readdirSync(whole.references));
    });
  }
});

t.test('without rewards the weights of a warm start stay as they are', { timeout: MAX_MS }, async t => {
  const { folder, train } = await tinyRuns(t);
  const unrewarded = {
    policy: { value_head: false },
    rollout: { constrained: true },
    algorithm: { advantage: 'grpo', mini_batch_size: 8, zero_task_advantage: true },
    loss: { entropy_coefficient: 0 },
    optimizer: { learning_rate: 1e-2, weight_decay: 0 },
  };
  const run = (name: string, over: Json) => train(name, mergeConfig(unrewarded, over));
  const warm_start = { policy: 'random', episodes: 20, epochs: 2 };
  const taught = await run('taught', { warm_start, training: { steps: 0 } });
  const init = join(folder, 'init');
  cpSync(latestCheckpoint(taught)!.policy, init, { recursive: true });

  for (const [name, over] of [
    ['after a warm start', { warm_start }],
    ['from a checkpoint', { policy: { init } }],
  ] as const) {
    const trained = await run(name.replaceAll(' ', '-'), over);
    t.ok(weightsOf(trained).equals(weightsOf(taught)), name);
    t.ok(trainingRows(trained).every(row => row['actor/grad_norm'] === 0));
  }
  const kept = await run('kept', { warm_start, policy: { keep_optimizer: true } });
  t.notOk(weightsOf(kept).equals(weightsOf(taught)), 'the old moments move the weights where they are kept');
});

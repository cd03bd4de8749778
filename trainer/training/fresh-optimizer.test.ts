import { cpSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { mergeConfig } from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';
import { serve } from '../rollout/server.test-data.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import { tinySettings, trainingRows, trainTiny, weightsOf } from './runs.test-data.ts';

/** The whole file takes seconds of processor time; a busy machine may need longer. */
const MAX_MS = 900_000;

t.test('without rewards the weights of a warm start stay as they are', { timeout: MAX_MS }, async t => {
  const [{ name: url }] = (await serve(t)).servers;
  const folder = t.testdir();
  const unrewarded = {
    policy: { value_head: false },
    rollout: { constrained: true },
    algorithm: { advantage: 'grpo', mini_batch_size: 8, zero_task_advantage: true },
    loss: { entropy_coefficient: 0 },
    optimizer: { learning_rate: 1e-2, weight_decay: 0 },
  };
  const run = (name: string, over: Json) =>
    trainTiny(tinySettings(url, folder, name, mergeConfig(unrewarded, over)));
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

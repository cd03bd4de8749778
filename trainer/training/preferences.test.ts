import t from 'tap';
import type { Json } from '../../shared/json.ts';
import { diagnoseCheckpoint } from '../commands/diagnose.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import { MAX_MS, tinyRuns, trainingRows, trainTiny, weightsOf } from './runs.test-data.ts';

t.test(
  'preferences within groups teach which arm pays, and a resumed run continues the same',
  { timeout: MAX_MS },
  async t => {
    const { settings, trainInTwo } = await tinyRuns(t);
    const over = {
      tags: {
        Arms: {
          env_id: 'Bandit-v0',
          config: { high_probability: 1 },
          max_turn: 1,
          max_actions_per_turn: 1,
          max_actions_per_traj: 1,
        },
      },
      train_tags: ['Arms'],
      policy: { value_head: false, context: 64, reference_refresh_every: 4 },
      rollout: { env_groups: 16, group_size: 4 },
      warm_start: { policy: 'random', episodes: 96, epochs: 30, learning_rate: 1e-2 },
      algorithm: { advantage: 'reinforce_pp', mini_batch_size: 16 },
      loss: { policy: 'dpo', beta: 0.1, aggregation: 'seq_mean_token_sum', entropy_coefficient: 0 },
      optimizer: { learning_rate: 3e-3, weight_decay: 0 },
      training: { steps: 12, checkpoint_every: 6 },
    } satisfies Json;
    const wholeSettings = settings('whole', over);
    const whole = await trainTiny(wholeSettings);
    const rows = trainingRows(whole);
    const success = rows.map(row => row['train/success']);
    const late = success.slice(-4).reduce((sum, share) => sum + share / 4, 0);
    t.ok(success[0] < 0.6 && late > 0.8, `${success}`);
    t.ok(rows[0]['train/pairs'] > 4 && rows[0]['train/pairs'] <= 16);
    const parted = await trainInTwo('parted', over, 6);
    t.ok(weightsOf(parted).equals(weightsOf(whole)));
    const { metrics } = await diagnoseCheckpoint(
      { run: whole, checkpoint: latestCheckpoint(whole)! },
      wholeSettings,
      () => {},
      new AbortController().signal,
    );
    t.equal(metrics['trainer/exited_after_gradient_analysis'], 1, 'diagnosed without gradients');
  },
);

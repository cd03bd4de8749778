import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { mergeConfig } from '../../shared/config.ts';
import type { Json, JsonObject } from '../../shared/json.ts';
import { serve } from '../rollout/server.test-data.ts';
import { readJsonLines } from '../tracking/jsonlines.ts';
import { type Row, tinySettings, trainInTwo, trainingRows, trainTiny, weightsOf } from './runs.test-data.ts';

interface Trajectory {
  readonly turns: readonly { readonly llm_raw_response: string }[];
}

/** The whole file takes seconds of processor time; a busy machine may need longer. */
const MAX_MS = 900_000;
t.test('every choice of algorithm trains against a server', { timeout: MAX_MS }, async t => {
  const pool = await serve(t);
  const [{ name: url }] = pool.servers;
  const folder = t.testdir();
  let runs = 0;
  const train = async (over: Json): Promise<Row[]> =>
    trainingRows(await trainTiny(tinySettings(url, folder, `run-${runs++}`, over)));
  /** The row of a run of one step. */
  const trainOnce = async (over: Json): Promise<Row> =>
    (await train(mergeConfig({ training: { steps: 1 } }, over)))[0];

  await t.test('KL in the loss starts at 0 next to the policy that training found', async t => {
    const [first, second] = await train({
      loss: { kl: { coefficient: 0.1 } },
      algorithm: { mini_batch_size: 16 },
    });
    t.ok(first['actor/kl_loss'] < 1e-8);
    t.ok(Math.abs(first['actor/ppo_kl']) < 1e-6);
    t.ok(second['actor/kl_loss'] > first['actor/kl_loss']);
  });

  await t.test('KL in the reward', async t => {
    const first = await trainOnce({
      algorithm: { advantage: 'reinforce_pp', kl_in_reward: { coefficient: 0.1 } },
    });
    t.equal(first['actor/kl_loss'], undefined);
  });

  for (const off_policy of [
    { kind: 'tis' },
    { kind: 'icepop' },
    { kind: 'geometric_mask', low: 0.999, high: 1.001 },
  ] as readonly ({ readonly kind: string } & JsonObject)[]) {
    await t.test(`${off_policy.kind}: weights of on-policy tokens are 1`, async t => {
      for (const row of await train({ loss: { off_policy } })) {
        t.ok(Math.abs(row['actor/off_policy_weight/mean'] - 1) < 1e-4);
        t.ok(Math.abs(row['actor/mismatch_kl']) < 1e-5);
      }
    });
  }

  await t.test('decoupled PPO, CISPO and GSPO', async t => {
    const row = await trainOnce({ loss: { policy: 'decoupled_ppo' } });
    t.ok(Math.abs(row['actor/off_policy_weight/max'] - 1) < 1e-4);
    await trainOnce({ loss: { policy: 'cispo' } });
    await trainOnce({ loss: { policy: 'gspo', aggregation: 'seq_mean_token_mean' } });
  });

  await t.test('the losses of trust regions and covariances', async t => {
    const bySequence = { aggregation: 'seq_mean_token_mean' };
    const losses: readonly JsonObject[] = [
      { policy: 'dppo' },
      { policy: 'dppo', dppo: { divergence: 'kl' }, anchor: 'old' },
      { policy: 'ipo' },
      { policy: 'sapo', ...bySequence },
      { policy: 'gmpo', ...bySequence },
      { policy: 'clip_cov', clip_cov: { low: -5 } },
      { policy: 'kl_cov' },
      { policy: 'dro', dro: { beta: 0.1 } },
    ];
    for (const loss of losses) {
      const row = await trainOnce({ loss });
      t.ok(Number.isFinite(row['actor/pg_loss']), JSON.stringify(loss));
      t.equal(row['actor/selected_frac'] > 0, String(loss.policy).endsWith('_cov'), JSON.stringify(loss));
    }
  });

  await t.test('advantages of turns, components, the best of a group and tokens', async t => {
    const components = { reward_components: { reward: 1, format_penalty: 1 } };
    for (const algorithm of [
      { advantage: 'turn_loo' },
      { advantage: 'gdpo', ...components },
      { advantage: 'pass_at_k' },
      { advantage: 'otb' },
      { advantage: 'hierarchical_grpo' },
    ]) {
      const row = await trainOnce({ algorithm });
      t.ok(Number.isFinite(row['critic/advantages/mean']), algorithm.advantage);
    }
  });

  await t.test(
    'named rewards of an environment come by REST and reach metrics, trajectories and gdpo',
    async t => {
      const settings = tinySettings(url, folder, 'components', {
        tags: { Sum: { env_id: 'Countdown-v0', max_turn: 1 } },
        train_tags: ['Sum'],
        algorithm: { advantage: 'gdpo', reward_components: { correct: 1, numbers: 0.1, format_penalty: 1 } },
        training: { steps: 1 },
        tracking: { trajectories_every: 1 },
      });
      const run = await trainTiny(settings);
      const [row] = trainingRows(run);
      for (const name of ['correct', 'numbers']) {
        t.ok(row[`train/Sum/rewards/${name}`] >= 0, name);
        t.ok(row[`critic/component_std/${name}`] >= 0, name);
      }
      const [file] = readdirSync(run.trajectories);
      const episodes = readJsonLines(join(run.trajectories, file)) as {
        turns: { actions: unknown[]; rewards?: Record<string, number> }[];
      }[];
      const acted = episodes.flatMap(({ turns }) => turns).filter(({ actions }) => actions.length > 0);
      t.ok(acted.length > 0);
      for (const { rewards } of acted) t.same(Object.keys(rewards!), ['correct', 'numbers']);
    },
  );

  await t.test('ECHO learns what the environment writes', async t => {
    const rows = await train({
      loss: { cross_entropy: { observations: 0.5 } },
      optimizer: { learning_rate: 1e-2 },
    });
    t.ok(rows[0]['actor/ce_tokens'] > 0);
    t.ok(rows[1]['actor/ce_nll'] < rows[0]['actor/ce_nll']);
  });

  await t.test('reverse KL to a reference is the whole of the loss in distillation', async t => {
    const row = await trainOnce({
      algorithm: { reward_scale: 0, mini_batch_size: 16 },
      loss: { kl: { estimator: 'reverse', coefficient: 1 } },
    });
    t.ok(Math.abs(row['actor/reverse_kl']) < 1e-6, 'the reference is the policy');
    t.equal(row['actor/kl_kept_frac'], 1);
  });

  await t.test('self-distillation learns from the policy after a success of the group', async t => {
    const rows = await train({
      policy: { context: 250 },
      algorithm: { reward_scale: 0, mini_batch_size: 16 },
      loss: { entropy_coefficient: 0, kl: { estimator: 'reverse', coefficient: 1, demonstration: 'group' } },
    });
    for (const row of rows) t.ok(row['train/undemonstrated'] >= 0 && row['train/undemonstrated'] <= 1);
    const shown = rows.filter(row => row['train/undemonstrated'] < 1);
    for (const row of shown)
      t.not(row['actor/kl_loss'], 0, 'the demonstration changes what the policy would say');
  });

  await t.test(
    'running baselines are in the checkpoint: a resumed run continues as one that never stopped',
    async t => {
      const settings = (name: string) =>
        tinySettings(url, folder, name, {
          algorithm: { advantage: 'rae' },
          rollout: { env_groups: 16, group_size: 1 },
          training: { steps: 3, checkpoint_every: 1 },
        });
      const whole = await trainTiny(settings('rae-whole'));
      const parted = await trainInTwo(settings('rae-parted'), 1);
      const baselines = (run: typeof whole) => trainingRows(run).map(row => row['critic/baseline/Lake']);
      t.ok(baselines(whole).some(value => value !== 0));
      t.same(baselines(parted), baselines(whole));
      t.same(weightsOf(parted), weightsOf(whole));
    },
  );

  await t.test('groups that the filter drops are collected again', async t => {
    const filter = { strategy: 'top_p', include_zero: false, fill: 'refill', refill_rounds: 3 };
    const rows = await train({ algorithm: { filter } });
    for (const row of rows) {
      t.ok(row['rollout/refill_rounds'] <= 3);
      const full = row['rollout/filter_kept_count'] >= 4;
      t.ok(full || row['rollout/refill_rounds'] === 3, 'refilled until full or out of rounds');
    }
  });

  await t.test('filters by entropy score the episodes first', async t => {
    const filter = { strategy: 'top_k', value: 0.5, score: 'entropy' };
    const row = await trainOnce({ algorithm: { filter }, loss: { off_policy: { kind: 'tis' } } });
    t.equal(row['rollout/filter_kept_count'], 2);
    t.ok(row['rollout/in_group_entropy_mean'] > 0.5);
  });

  for (const context_mode of ['limited_multi_turn', 'single_turn']) {
    await t.test(`${context_mode} trains a sample a turn`, async t => {
      const row = await trainOnce({
        rollout: { context_mode, max_context_window: 2 },
        optimizer: { learning_rate: 0 },
      });
      t.ok(row['num_turns/mean'] > 1);
      t.ok(Math.abs(row['actor/ppo_kl']) < 1e-6, 'trained as sampled');
    });
  }

  await t.test('a short context drops old turns and continues', async t => {
    const row = await trainOnce({ rollout: { max_model_len: 48 }, algorithm: { advantage: 'gae' } });
    t.ok(row['num_turns/mean'] > 2);
  });

  await t.test(
    'constrained responses are well-formed, and ratios start at 1 under the same mask',
    async t => {
      const row = await trainOnce({ rollout: { constrained: true }, algorithm: { mini_batch_size: 16 } });
      t.equal(row['train/Lake/format_penalty'], 0);
      t.ok(Math.abs(row['actor/ppo_kl']) < 1e-6);
    },
  );

  await t.test(
    'responses end at stop strings, wherever tokens part them, and are trained as sampled',
    async t => {
      const stop_strings = ['Up', '||L'];
      const settings = tinySettings(url, folder, 'stops', {
        rollout: { stop_strings, response_length: 10 },
        algorithm: { mini_batch_size: 16 },
        tracking: { trajectories_every: 1 },
      });
      const run = await trainTiny(settings);
      for (const row of trainingRows(run)) t.ok(Math.abs(row['actor/ppo_kl']) < 1e-6);
      const responses = readdirSync(run.trajectories)
        .flatMap(name => readJsonLines(join(run.trajectories, name)) as Trajectory[])
        .flatMap(({ turns }) => turns.map(turn => turn.llm_raw_response));
      for (const stop of stop_strings) {
        const ended = responses.filter(text => text.includes(stop));
        t.ok(ended.length > 0, `some hold ${stop}`);
        for (const text of ended) t.match(text.slice(text.indexOf(stop)), /^(Up|\|\|Left)$/);
      }
    },
  );

  await t.test(
    'extras: advantages reweighed, overlong masked, batches padded, returns normalized',
    async t => {
      await train({
        algorithm: {
          soft_advantage_reweight: true,
          advantage_length_weight: true,
          overlong_mask: true,
          filter: { fill: 'pad' },
          reward_normalization: { grouping: 'batch', method: 'mean_std' },
        },
        loss: { aggregation: 'dr_grpo', max_response_length: 18 },
      });
      const rows = await train({
        algorithm: { zero_task_advantage: true },
        loss: { entropy_coefficient: 0 },
      });
      for (const row of rows) t.equal(row['actor/grad_norm'], 0);
    },
  );

  await t.test('a mixture of tags changes with its curriculum, and each tag has its numbers', async t => {
    const rows = await train({
      tags: {
        Room: { env_id: 'Sokoban-v0', config: { preset: 'simple' }, max_turn: 3 },
        Arms: { env_id: 'Bandit-v0', max_turn: 1, max_actions_per_turn: 1, max_actions_per_traj: 1 },
      },
      train_tags: ['Lake', 'Room', 'Arms'],
      rollout: {
        curriculum: {
          stages: [
            { from_step: 1, weights: { Lake: 1, Arms: 1 } },
            { from_step: 2, weights: { Room: 3, Arms: 1 } },
          ],
        },
      },
    });
    const episodes = (tag: string) => rows.map(row => row[`train/${tag}/episodes`] ?? 0);
    t.same(
      [episodes('Lake'), episodes('Room'), episodes('Arms')],
      [
        [8, 0],
        [0, 12],
        [8, 4],
      ],
    );
    t.equal(rows[1]['train/Arms/num_turns'], 1);
    t.ok(rows[1]['train/Room/num_turns'] > 1);
    t.equal(rows[1]['train/Lake/success'], undefined);
  });

  await t.test('episodes that the caps cut continue with a value, next to turns that are left', async t => {
    const over = (bootstrap: string) => ({
      algorithm: { advantage: 'gae', bootstrap },
      rollout: { show_turns_left: true },
      policy: { context: 160 },
    });
    const [caps, none] = [await train(over('caps')), await train(over('environment'))];
    t.equal(caps[0]['critic/returns/mean'], none[0]['critic/returns/mean'], 'a fresh head expects nothing');
    t.not(caps[1]['critic/returns/mean'], none[1]['critic/returns/mean']);
    t.ok(caps[0]['train/truncated'] > 0 && caps[0]['train/bootstrapped'] === caps[0]['train/truncated']);
    t.equal(none[0]['train/bootstrapped'], 0);
  });

  await t.test('a file rewards episodes, and one that fails ends the run with its name', async t => {
    const hooks = t.testdir({
      'hook.ts': 'export const reward = ({ turns }) => ({ rewards: turns.map(() => 10) });',
      'bad.ts': 'export const reward = () => { throw new Error("no idea"); };',
    });
    const row = await trainOnce({ rollout: { reward: { file: join(hooks, 'hook.ts'), mode: 'replace' } } });
    t.ok(row['train/return'] > 25, `three turns of 10 less penalties: ${row['train/return']}`);
    const bad = { reward: { file: join(hooks, 'bad.ts') } };
    await t.rejects(train({ rollout: bad }), /bad\.ts failed: Error: no idea/);
  });

  await t.test(
    'levels are played again, and tags by their success; a resumed run continues the same',
    async t => {
      const over = {
        tags: {
          Lake: { env_id: 'FrozenLake-v0', max_turn: 3 },
          Calm: { env_id: 'FrozenLake-v0', config: { success_rate: 1 }, max_turn: 3 },
        },
        train_tags: ['Lake', 'Calm'],
        rollout: { env_groups: 6, adaptive_curriculum: { floor: 0.4 }, level_replay: { capacity: 8 } },
        training: { steps: 4, checkpoint_every: 2 },
      };
      const settings = (name: string) => tinySettings(url, folder, name, over);
      const whole = await trainTiny(settings('replay-whole'));
      const parted = await trainInTwo(settings('replay-parted'), 2);
      t.ok(weightsOf(parted).equals(weightsOf(whole)));
      const rows = trainingRows(whole);
      t.same(
        rows.map(row => row['curriculum/replayed_groups'] > 0),
        [false, true, true, true],
      );
      t.same(
        rows.map(row => row['curriculum/replay_levels']),
        [6, 8, 8, 8],
      );
      t.type(rows[0]['curriculum/Calm/success'], 'number');
    },
  );
});

import t from 'tap';
import type { Json } from '../../shared/json.ts';
import { checkBranching } from '../config/learning-combinations.ts';
import type { DescribedTag } from '../rollout/described-tag.ts';
import { readJsonLines } from '../tracking/jsonlines.ts';
import { latestCheckpoint } from './run-folder/checkpoint.ts';
import { MAX_MS, type Row, tinyRuns, tinySettings, trainingRows, weightsOf } from './runs.test-data.ts';

/** A small lake without holes, in which random play sometimes gets to the goal. */
const BASE = {
  tags: {
    Lake: {
      env_id: 'FrozenLake-v0',
      config: { size: 2, p_frozen: 1, success_rate: 0.7 },
      max_turn: 4,
      max_actions_per_turn: 1,
      max_actions_per_traj: 4,
    },
  },
  train_tags: ['Lake'],
  policy: { value_head: false, context: 96 },
  rollout: { env_groups: 8, group_size: 8 },
  warm_start: { policy: 'random', episodes: 64, epochs: 12, learning_rate: 1e-2 },
  loss: { entropy_coefficient: 0, aggregation: 'token_mean' },
  optimizer: { learning_rate: 3e-3, weight_decay: 0 },
  tracking: { trajectories_every: 1 },
} satisfies Json;

/** Settings with some of each section replaced. */
function over(more: { [section: string]: { [key: string]: Json } }): Json {
  const all: { [section: string]: Json } = { ...BASE };
  for (const [name, keys] of Object.entries(more)) {
    all[name] = { ...(BASE as { [section: string]: object })[name], ...keys };
  }
  return all;
}

const TREE = over({
  rollout: { tree: { where: 'drawn', roots: 4 } },
  algorithm: { advantage: 'tree_loo', mini_batch_size: 64 },
  training: { steps: 4, checkpoint_every: 2, validate_first: false, validate_every: 4 },
});
const PREFIX = over({
  rollout: { prefix: { share: 0.5, low: 0.4, high: 0.6 } },
  algorithm: { advantage: 'rloo', mini_batch_size: 64 },
  training: { steps: 4, checkpoint_every: 2, validate_first: false, validate_every: 4 },
});

t.test(
  'trees: a resumed run continues as one that never stopped, and budgets are counted',
  { timeout: MAX_MS },
  async t => {
    const { train, trainInTwo } = await tinyRuns(t);
    const whole = await train('whole', TREE);
    const parted = await trainInTwo('parted', TREE, 2);
    t.ok(weightsOf(parted).equals(weightsOf(whole)));
    const rows = trainingRows(whole);
    t.equal(rows.length, 4);
    for (const row of rows) {
      t.ok(row['branch/leaves'] > 32 && row['branch/leaves'] <= 64, `${row['branch/leaves']} leaves`);
      t.equal(row['branch/leaves'], 32 + row['branch/branches']);
      t.ok(row['branch/env_steps'] > 0 && row['branch/zero_advantage_ratio'] < 1);
    }
    const { state } = latestCheckpoint(whole)!;
    t.equal(
      state.envSteps,
      rows.reduce((sum, row) => sum + row['branch/env_steps'], 0),
    );
    t.equal(
      state.usedTokens,
      rows.reduce((sum, row) => sum + row['branch/sampled_tokens'], 0),
    );
    t.equal(state.sampledTokens, state.usedTokens, 'each token is in one loss mask');
    const stopped = await train(
      'stopped',
      over({
        rollout: { tree: { roots: 4 } },
        algorithm: { advantage: 'tree_grpo', mini_batch_size: 64 },
        training: { steps: 9, max_env_steps: rows[0]['branch/env_steps'], validate_first: false },
      }),
    );
    t.ok(trainingRows(stopped).length <= 2, 'the budget ends the run');
  },
);

t.test(
  'vine: a resumed run continues as one that never stopped, and learns from values',
  { timeout: MAX_MS },
  async t => {
    const { train, trainInTwo } = await tinyRuns(t);
    const settings = over({
      rollout: { env_groups: 16, group_size: 1, vine: { clones: 3 } },
      algorithm: { advantage: 'vine', mini_batch_size: 16 },
      training: { steps: 4, checkpoint_every: 2, validate_first: false, validate_every: 4 },
    });
    const whole = await train('whole', settings);
    const parted = await trainInTwo('parted', settings, 2);
    t.ok(weightsOf(parted).equals(weightsOf(whole)));
    for (const row of trainingRows(whole)) {
      t.ok(row['branch/clone_steps'] > 0 && row['branch/clone_steps'] < row['branch/env_steps']);
      t.ok(row['vine/value_std'] > 0 && row['vine/unique_ratio'] > 0 && row['vine/explained'] <= 1);
    }
  },
);

t.test('prefixes: a resumed run continues as one that never stopped', { timeout: MAX_MS }, async t => {
  const { train, trainInTwo } = await tinyRuns(t);
  const whole = await train('whole', PREFIX);
  const parted = await trainInTwo('parted', PREFIX, 2);
  t.ok(weightsOf(parted).equals(weightsOf(whole)));
  t.same(latestCheckpoint(parted)!.state.prefixes, latestCheckpoint(whole)!.state.prefixes);
  const rows = trainingRows(whole);
  const sum = (name: string) => rows.reduce((all, row) => all + (row[name] ?? 0), 0);
  t.ok(sum('prefix/groups') > 0, 'some groups continued an episode');
  t.ok(sum('branch/replayed_steps') >= sum('prefix/groups'));
  t.equal(sum('prefix/dropped_diverged'), 0);
  for (const row of rows) {
    const classes = ['all_fail', 'too_hard', 'balanced', 'too_easy', 'all_pass'];
    const plain = classes.reduce((all, name) => all + row[`prefix/class/${name}`], 0);
    t.equal(plain + row['prefix/groups'], 8);
    t.equal(row['train/Lake/episodes'], 8 * plain, 'train/* is that of episodes from the start');
  }
  const written = [1, 2, 3, 4].flatMap(
    step => readJsonLines(`${whole.trajectories}/train-00000${step}.jsonl`) as Row[],
  ) as unknown as {
    prefix?: { turns: number };
    reseeds?: object[];
    samples: { mask: number[] }[];
    turns: { tokens: [number, number] }[];
  }[];
  const continued = written.filter(({ prefix }) => prefix);
  t.equal(continued.length, 8 * sum('prefix/groups'));
  for (const { prefix, samples, turns, reseeds } of continued) {
    t.equal(reseeds!.length, 1);
    t.ok(samples[0].mask.slice(0, turns[prefix!.turns - 1].tokens[1]).every(on => on === 0));
  }
});

t.test('graph estimators take the state keys of the server', { timeout: MAX_MS }, async t => {
  const { train } = await tinyRuns(t);
  const run = await train(
    'graph',
    over({
      rollout: { state_key: 'state' },
      algorithm: { advantage: 'graph_gpo', mini_batch_size: 64 },
      training: { steps: 1, validate_first: false },
    }),
  );
  const [row] = trainingRows(run);
  t.ok(row['graph/nodes'] > 1 && row['graph/singleton_ratio'] < 1);
  const [first] = readJsonLines(`${run.trajectories}/train-000001.jsonl`) as {
    turns: { state_key?: string }[];
  }[];
  t.match(first.turns[0].state_key, /^[\w-]{22}$/);
});

t.test('settings that do not fit are refused by both names', async t => {
  const keysOf = (more: Parameters<typeof over>[0]): string => {
    try {
      tinySettings('http://127.0.0.1:1', '/tmp', 'x', over(more));
      return '';
    } catch (error) {
      return (error as Error).message.replaceAll('`', '');
    }
  };
  const tree = { tree: { roots: 4 } };
  t.match(
    keysOf({ algorithm: { advantage: 'tree_loo' } }),
    /algorithm.advantage: tree_loo compares the leaves of trees, but rollout.tree is null/,
  );
  for (const advantage of ['grpo', 'rloo', 'dr_grpo', 'graph_gpo', 'gagpo'])
    t.match(
      keysOf({ rollout: tree, algorithm: { advantage } }),
      new RegExp(`${advantage} takes episodes to be independent`),
    );
  const loo = { advantage: 'tree_loo' };
  t.match(
    keysOf({ rollout: { tree: { roots: 8 } }, algorithm: loo }),
    /rollout.tree: comes to up to 16 leaves a group \(8 roots\), but rollout.group_size is 8/,
  );
  t.match(
    keysOf({ rollout: { tree: { where: 'fixed', roots: 1 } }, algorithm: loo }),
    /rollout.tree.turns: is null/,
  );
  t.match(
    keysOf({ rollout: { ...tree, prefix: {} }, algorithm: loo }),
    /rollout.prefix: continues single episodes/,
  );
  t.match(
    keysOf({ rollout: tree, algorithm: loo, loss: { aggregation: 'seq_mean_token_mean' } }),
    /loss.aggregation: seq_mean_token_mean divides by the tokens of a leaf/,
  );
  const vine = { advantage: 'vine' };
  t.match(
    keysOf({ algorithm: vine }),
    /algorithm.advantage: vine takes values of histories.*rollout.vine is null/,
  );
  t.match(
    keysOf({ rollout: { vine: {} }, algorithm: { advantage: 'rloo' } }),
    /rloo uses no values of rollout.vine, which cost 9 continuations a turn/,
  );
  t.match(
    keysOf({ rollout: { vine: {}, ...tree }, algorithm: vine }),
    /rollout.vine: values the histories of whole episodes: set rollout.tree to null/,
  );
  t.match(keysOf({ rollout: { vine: {} }, algorithm: { ...vine, gamma: 0.9 } }), /algorithm.gamma: is 0.9/);
  t.match(
    keysOf({ rollout: { vine: {}, asynchronous: {} }, algorithm: vine }),
    /rollout.vine: compares branches under the same weights/,
  );
  for (const key of ['tree', 'prefix'])
    t.match(
      keysOf({ rollout: { [key]: {}, asynchronous: {} }, algorithm: loo }),
      new RegExp(`rollout.${key}: `),
    );
  t.match(
    keysOf({ rollout: { prefix: {}, luck: 'same' }, algorithm: { advantage: 'rloo' } }),
    /rollout.luck: is same, and rollout.prefix chooses episodes by their outcome/,
  );
  t.equal(
    keysOf({
      rollout: { prefix: { deterministic: true }, luck: 'same' },
      algorithm: { advantage: 'rloo', mini_batch_size: 8 },
    }),
    '',
  );
});

t.test(
  'environments that cannot branch are refused by id and capability, or played by replay with a note',
  async t => {
    const settings = (rollout: { [key: string]: Json }) =>
      tinySettings(
        'http://127.0.0.1:1',
        '/tmp',
        'x',
        over({
          rollout,
          algorithm: { advantage: 'tree' in rollout ? 'tree_loo' : 'rloo', mini_batch_size: 8 },
        }),
      );
    const tag = (capabilities: Partial<DescribedTag>) =>
      [
        {
          tag: { name: 'Lake', environmentId: 'ns/Foo-v1' },
          seedable: true,
          copyable: true,
          reseedable: true,
          ...capabilities,
        },
      ] as unknown as DescribedTag[];
    const none = { seedable: false, copyable: false, reseedable: false };
    t.throws(() => checkBranching(settings({ tree: {} }), tag(none)), {
      message: 'rollout.tree: ns/Foo-v1 has neither snapshot nor seed, so an episode cannot be branched',
    });
    t.same(checkBranching(settings({ tree: {} }), tag({})), []);
    const old = { copyable: false, reseedable: false };
    t.match(
      checkBranching(settings({ tree: {} }), tag(old)).join('\n'),
      /no capability snapshot.*\n.*the same luck/,
    );
    t.throws(
      () => checkBranching(settings({ prefix: {} }), tag({ reseedable: false })),
      /rollout.prefix: ns\/Foo-v1 has no capability reseed/,
    );
    t.match(
      checkBranching(settings({ prefix: { deterministic: true } }), tag(old)).join(),
      /each branch opens a session with the same seed/,
    );
    t.throws(
      () => checkBranching(settings({ state_key: 'state' }), tag(old)),
      /ns\/Foo-v1 has no state keys/,
    );
  },
);

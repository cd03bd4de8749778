import { join } from 'node:path';
import t from 'tap';
import { readSweep, sweepRuns } from './sweep-plan.ts';

const none = { seeds: [0], overrides: [], variants: {}, grid: {} };

t.test('variants, grid and seeds multiply, seed by seed', async t => {
  const runs = sweepRuns({
    seeds: [0, 1],
    overrides: ['training.steps=5'],
    variants: { ppo: [], grpo: ['recipe=grpo'] },
    grid: { 'optimizer.learning_rate': [0.001, 0.0005] },
  });
  t.same(
    runs.map(({ name }) => name),
    [0, 1].flatMap(seed =>
      ['ppo', 'grpo'].flatMap(name =>
        ['0.001', '0.0005'].map(rate => `${name}-learning_rate_${rate}-seed-${seed}`),
      ),
    ),
  );
  t.same(runs[3], {
    name: 'grpo-learning_rate_0.0005-seed-0',
    variant: 'grpo-learning_rate_0.0005',
    seed: 0,
    overrides: ['training.steps=5', 'recipe=grpo', 'optimizer.learning_rate=0.0005', 'seed=0'],
  });
});

t.test('other settings can contain the seed', async t => {
  const overrides = ['policy.init=runs/warm-{seed}/policy'];
  const runs = sweepRuns({ ...none, overrides, seeds: [3, 4] });
  t.same(
    runs.map(run => run.overrides[0]),
    ['policy.init=runs/warm-3/policy', 'policy.init=runs/warm-4/policy'],
  );
});

t.test('without variants there is one, and values become names of folders', async t => {
  t.same(
    sweepRuns(none).map(({ name }) => name),
    ['run-seed-0'],
  );
  const [run] = sweepRuns({ ...none, grid: { recipe: [['grpo', 'asynchronous']] } });
  t.equal(run.name, 'run-recipe_grpo_asynchronous_-seed-0'.replace('recipe_grpo', 'recipe__grpo'));
  t.equal(run.overrides[0], 'recipe=["grpo","asynchronous"]');
});

t.test('a file is read, named and checked', async t => {
  const folder = t.testdir({
    'lakes.yaml': 'config: ../quickstart.yaml\nseeds: [3]\n',
    'wrong.yaml': 'config: a.yaml\nseed: [3]\n',
  });
  const plan = readSweep(join(folder, 'lakes.yaml'), ['training.steps=1']);
  t.equal(plan.name, 'lakes');
  t.equal(plan.config, join(folder, '..', 'quickstart.yaml'));
  t.same(plan.runs[0].overrides, ['training.steps=1', 'seed=3']);
  t.throws(
    () => readSweep(join(folder, 'wrong.yaml'), []),
    /wrong\.yaml:2: `seed`: unknown key, did you mean `seeds`/,
  );
});

t.test(
  'a random search draws its points from ranges, the same for the same seed, more after fewer',
  async t => {
    const random = (points: number) => ({
      points,
      seed: 3,
      space: {
        'optimizer.learning_rate': { log_uniform: [1e-4, 1e-2] as [number, number] },
        'loss.entropy_coefficient': { uniform: [0, 0.02] as [number, number] },
        'policy.layers': { integer: [2, 4] as [number, number] },
        recipe: { choice: ['grpo', 'rloo'] },
      },
    });
    const runs = (points: number) => sweepRuns({ ...none, seeds: [0, 1], random: random(points) });
    t.equal(runs(5).length, 10);
    t.same(runs(5).slice(0, 3), runs(3).slice(0, 3));
    t.equal(new Set(runs(5).map(({ variant }) => variant)).size, 5);
    const values = (key: string) =>
      runs(40).flatMap(({ overrides }) =>
        overrides.flatMap(text => (text.startsWith(`${key}=`) ? [text.slice(key.length + 1)] : [])),
      );
    t.ok(values('optimizer.learning_rate').every(value => Number(value) >= 1e-4 && Number(value) <= 1e-2));
    t.same([...new Set(values('policy.layers'))].sort(), ['2', '3', '4']);
    t.same([...new Set(values('recipe'))].sort(), ['grpo', 'rloo']);
    t.match(
      runs(1)[0].name,
      /^run-p0-learning_rate_0\.\d+-entropy_coefficient_.*-layers_\d-recipe_\w+-seed-0$/,
    );
  },
);

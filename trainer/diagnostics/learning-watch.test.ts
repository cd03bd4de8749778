import t from 'tap';
import type { Metrics } from '../data/episode-metrics.ts';
import { LearningWatch } from './learning-watch.ts';

const settings = (constrained = false) =>
  ({
    train_tags: ['Quiz'],
    rollout: { constrained },
    training: { steps: 60 },
    tags: { Quiz: { random_success: 0.05 } },
  }) as never;

interface Iteration {
  readonly metrics: Metrics;
  readonly returns: readonly number[];
}

/** An iteration of 100 episodes with these returns, the last of which the others share. */
const row = (success: number, least: number, most: number, valid = 1, few = 50): Iteration => ({
  metrics: { 'train/success': success, 'train/Quiz/action_is_valid': valid },
  returns: Array.from({ length: 100 }, (_, i) => (i < few ? least : most)),
});

/** Warnings after each of these iterations. */
const warnings = (rows: readonly Iteration[], constrained?: boolean): (readonly string[])[] => {
  const watch = new LearningWatch(settings(constrained));
  return rows.map(({ metrics, returns }) => watch.after(metrics, returns));
};

t.test('episodes that all return the same are reported once, with what to give', async t => {
  const [first, second, third, fourth] = warnings(Array.from({ length: 4 }, () => row(0, -0.2, -0.2)));
  t.same([first, second, fourth], [[], [], []]);
  t.match(third, [/no episode of 300 succeeded, and all returned -0\.2: .*warm_start\.files/]);
  t.same(warnings(Array.from({ length: 4 }, () => row(0, 0, 1))), [[], [], [], []], 'with other rewards');
  t.same(warnings(Array.from({ length: 4 }, () => row(1, 1, 1))), [[], [], [], []], 'with success');
  const none = { metrics: {}, returns: [] };
  t.same(warnings([none, none, none]), [[], [], []], 'without episodes');
});

t.test('rewards of fewer than one episode in a hundred are reported with how many there were', async t => {
  const rare = (few: number) => warnings(Array.from({ length: 4 }, () => row(few / 100, 1, 0, 1, few)));
  t.match(rare(1)[2], [/3 of 300 episodes returned anything but 0, and 3 succeeded: .*warm_start\.files/]);
  t.same(rare(1)[3], []);
  t.same(rare(2).flat(), []);
});

t.test('answers that are no actions are reported with what makes them actions', async t => {
  const rows = Array.from({ length: 4 }, () => row(0.01, -0.2, 1, 0.05));
  t.match(warnings(rows)[2], [
    /5 % of the answers in Quiz are valid actions: list actions \(tags\.Quiz\.actions\)/,
  ]);
  t.match(warnings(rows, true)[2], [/the environment rejects actions that it lists/]);
  t.same(warnings(rows)[3], []);
});

t.test('success that is lost is reported with what costs it', async t => {
  const rows = Array.from({ length: 12 }, (_, i) => row(i < 5 ? 0.2 : 0.02, -1, 1));
  const found = warnings(rows);
  t.same(found.slice(0, 9).flat(), []);
  t.match(found[9], [/success fell from 20 % to 2 %: .*loss\.entropy_coefficient/]);
  t.same(found.slice(10).flat(), []);
  t.same(warnings(rows.map((one, i) => (i < 5 ? one : row(0.1, -1, 1)))).flat(), [], 'half of it is left');
});

t.test('after a resume the first iterations of the run are compared, not those since', async t => {
  const rows = Array.from({ length: 12 }, (_, i) => row(i < 5 ? 0.2 : 0.02, -1, 1).metrics);
  const watch = new LearningWatch(settings(), [{ 'val-env/success': 1 }, ...rows]);
  const { metrics, returns } = row(0.02, -1, 1);
  t.match(watch.after(metrics, returns), [/success fell from 20 % to 2 %/]);
  t.same(watch.after(metrics, returns), []);
});

t.test(
  'success that has not risen from that of random play is reported once, with what to look at',
  async t => {
    const run = (success: (i: number) => number, earned: (i: number) => number, count = 30) =>
      warnings(
        Array.from({ length: count }, (_, i) => ({
          metrics: {
            'train/success': success(i),
            'train/Quiz/success': success(i),
            'train/Quiz/episodes': 100,
            'train/Quiz/episodic_return': earned(i),
          },
          returns: Array.from({ length: 100 }, (_, k) => k),
        })),
      );
    const flat = run(
      () => 0.06,
      () => -0.5,
    );
    t.same(flat.slice(0, 19).flat(), []);
    t.match(flat[19], [
      /^success in Quiz has not risen in 20 iterations: 6 % at first, 6 % in the last 10, 5 % at random; its return went from -0\.5 to -0\.5\. See .*warm_start\.files.*rollout\.env_groups/,
    ]);
    t.same(flat.slice(20).flat(), []);
    const earning = run(
      () => 0.06,
      i => i / 10,
    );
    t.match(earning[19], [/return went from 0\.1 to 1\.4\. It earns more without succeeding/]);
    const rising = (i: number) => 0.06 + i / 200;
    t.same(run(rising, () => 0).flat(), [], 'rising success');
    t.same(
      run(
        () => 0.6,
        () => 0,
      ).flat(),
      [],
      'enough success',
    );
  },
);

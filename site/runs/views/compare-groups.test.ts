import t from 'tap';
import { type Compared, curveOf, differingKeys, groupsOf, lastCommon } from './compare-groups.ts';
import { comparison } from './compare-view.ts';

function run(id: string, seed: number, lr: number, values: readonly number[]): Compared {
  const x = values.map((_, i) => 10 * i);
  const seconds = { x, y: x.map(step => (seed * step) / 10) };
  return {
    detail: {
      row: { id, run: { name: id, seed } },
      config: { seed, run: { name: id }, optimizer: { lr }, servers: [{ token: 'x' }] },
    },
    metrics: { series: { m: { x, y: values }, 'training/seconds': seconds } },
  } as unknown as Compared;
}

const RUNS = [
  run('a-1', 1, 0.1, [0, 0.2, 0.4]),
  run('a-2', 2, 0.1, [0, 0.4]),
  run('b-1', 1, 0.5, [0, 0.1]),
  run('b-2', 2, 0.5, [0, 0.1, 0.9]),
];

t.test('runs are grouped by all settings but the seed, by one setting, or not at all', async t => {
  t.same(differingKeys(RUNS), ['seed', 'optimizer.lr']);
  const shape = (grouping: string) =>
    groupsOf(RUNS, grouping).map(({ label, members }) => [label, members.length]);
  t.same(shape('seeds'), [
    ['a (2 seeds)', 2],
    ['b (2 seeds)', 2],
  ]);
  t.same(shape('optimizer.lr'), [
    ['lr 0.1', 2],
    ['lr 0.5', 2],
  ]);
  t.equal(shape('runs').length, 4);
  t.same(shape('nothing'), [['nothing –', 4]]);
});

t.test('a curve is the mean at steps that all runs have, with their mean position', async t => {
  const [group] = groupsOf(RUNS, 'seeds');
  const { x, y, low, at } = curveOf(group, 'm', 'time');
  t.same(x, [0, 10]);
  t.same(
    y.map(value => Number(value.toFixed(6))),
    [0, 0.3],
  );
  t.equal(Number(low![1].toFixed(4)), 0.1586);
  t.equal(at!(10), 1.5, 'seconds of both on average');
});

t.test('groups are compared at the last common step, by pairs of one seed', async t => {
  t.match(lastCommon(RUNS, 'm'), { step: 10, values: [0.2, 0.4, 0.1, 0.1] });
  t.equal(lastCommon(RUNS, 'none'), undefined);
  const [one, other] = groupsOf(RUNS, 'seeds');
  const found = comparison(one, other, 'm')!;
  t.match(found, {
    step: 10,
    pairs: [
      { seed: 1, first: 0.2, second: 0.1 },
      { seed: 2, first: 0.4, second: 0.1 },
    ],
  });
  t.match(found.result, { p: 0.5, least: 0.5 });
  const alone = { label: 'x', members: [run('x', 9, 0.1, [0, 0.9])] };
  t.match(comparison(alone, other, 'm'), { pairs: [], result: { p: 1 / 3 } });
});

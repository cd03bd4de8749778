import t from 'tap';
import { chartViewOf, interpolated, knownAxes, smoothed } from './chart-view.ts';

t.test('an address sets the view of charts, and invalid choices are ignored', async t => {
  const usual = { axis: 'step', smoothing: 0.6, log: false };
  t.same(chartViewOf({}), usual);
  t.same(chartViewOf({ x: 'time', smooth: '0', log: 'yes', zoom: '1.5:20' }), {
    axis: 'time',
    smoothing: 0,
    log: true,
    zoom: [1.5, 20],
  });
  const wrong: Record<string, string>[] = [
    { x: 'toString' },
    { smooth: '1' },
    { smooth: 'x' },
    { zoom: '5:5' },
    { zoom: ':5' },
    { zoom: '1:Infinity' },
    { zoom: '7' },
    { log: '1' },
  ];
  for (const query of wrong) t.same(chartViewOf(query), usual, JSON.stringify(query));
});

t.test('axes without their metric are left out', async t => {
  t.same(knownAxes(['training/seconds', 'train/return']), ['step', 'time']);
});

t.test('positions between steps are interpolated, from 0 to the last one', async t => {
  const at = interpolated({ x: [10, 20, 30], y: [100, Number.NaN, 300] });
  t.same([0, 5, 10, 20, 30, 99].map(at), [0, 50, 100, 200, 300, 300]);
  t.equal(interpolated({ x: [], y: [] })(5), 0);
});

t.test('smoothing has no bias at its start and skips values that are not numbers', async t => {
  t.same(
    smoothed([4, 4, 4], 0.9).map(value => Number(value.toFixed(9))),
    [4, 4, 4],
  );
  t.same(smoothed([1, 2], 0), [1, 2]);
  t.same(
    smoothed([Number.NaN, 1, Number.NaN, 3], 0.5).map(value => Number(value.toFixed(4))),
    [Number.NaN, 1, Number.NaN, 2.3333],
  );
});

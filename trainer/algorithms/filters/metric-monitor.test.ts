import t from 'tap';
import { type MonitorSettings, type MonitorState, monitorMetric } from './metric-monitor.ts';

const SETTINGS: MonitorSettings = {
  metric: 'val-env/success',
  mode: 'max',
  patience: 2,
  minDelta: 0.01,
  target: 0.9,
};

/** Verdicts on successive validations; the state passes through JSON as in a checkpoint. */
function judged(values: readonly number[], over: Partial<MonitorSettings> = {}) {
  let state: MonitorState | undefined;
  return values.map((value, step) => {
    const verdict = monitorMetric({ ...SETTINGS, ...over }, state, step, { 'val-env/success': value });
    state = JSON.parse(JSON.stringify(verdict.state));
    return { best: verdict.state.best.step, isBest: verdict.isBest, stop: verdict.stop };
  });
}

t.test('a run stops after `patience` validations that improve by no more than `min_delta`', async t => {
  t.same(
    judged([0.1, 0.3, 0.305, 0.2]).map(({ stop }) => stop),
    [null, null, null, 'plateau'],
  );
  t.same(
    judged([0.1, 0.3, 0.305, 0.32, 0.31]).map(({ stop }) => stop),
    [null, null, null, null, null],
  );
  t.equal(judged([0.5, 0.5, 0.5, 0.5], { patience: 0 }).at(-1)!.stop, null);
});

t.test('the best validation is kept, however little better it is', async t => {
  t.same(
    judged([0.1, 0.3, 0.305, 0.305]).map(({ best, isBest }) => [best, isBest]),
    [
      [0, true],
      [1, true],
      [2, true],
      [2, false],
    ],
  );
});

t.test('a target ends the run, and `min` turns better and worse around', async t => {
  t.equal(judged([0.1, 0.9]).at(-1)!.stop, 'target');
  const down = judged([5, 4, 3], { mode: 'min', target: 3 });
  t.same(
    down.map(({ best, stop }) => [best, stop]),
    [
      [0, null],
      [1, null],
      [2, 'target'],
    ],
  );
});

t.test('a metric that validation does not have is an error that names those it has', async t => {
  t.throws(
    () => monitorMetric(SETTINGS, undefined, 0, { 'val-env/Lake/success': 1, 'val-env/turns': 3 }),
    /a validation has no val-env\/success; it has e\.g\. val-env\/Lake\/success$/,
  );
});

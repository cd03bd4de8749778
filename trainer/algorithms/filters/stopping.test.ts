import t from 'tap';
import {
  DEFAULT_EARLY_STOPPING,
  EarlyStopping,
  type MonitorSettings,
  type MonitorState,
  monitorMetric,
} from './stopping.ts';

t.test('five collections in a row without a kept group stop the run', async t => {
  const watch = new EarlyStopping(DEFAULT_EARLY_STOPPING);
  for (let i = 0; i < 4; i++) t.equal(watch.afterCollection(0, 1), null);
  t.equal(watch.afterCollection(1, 1), null);
  for (let i = 0; i < 4; i++) t.equal(watch.afterCollection(0, 1), null);
  t.equal(watch.afterCollection(0, 1), 'empty_batches');
});

t.test('ten steps under a tenth of the first ten steps’ spread stop the run', async t => {
  const watch = new EarlyStopping(DEFAULT_EARLY_STOPPING);
  for (let i = 0; i < 10; i++) t.equal(watch.afterCollection(8, i < 5 ? 1 : 3), null);
  for (let i = 0; i < 9; i++) t.equal(watch.afterCollection(8, 0.19), null);
  t.equal(watch.afterCollection(8, 0.21), null, 'a step above starts again');
  for (let i = 0; i < 9; i++) t.equal(watch.afterCollection(8, 0.19), null);
  t.equal(watch.afterCollection(8, 0.19), 'reward_std');
});

t.test('five validations that never succeed stop the run, if no tag succeeds', async t => {
  const watch = new EarlyStopping(DEFAULT_EARLY_STOPPING);
  for (let i = 0; i < 10; i++) t.equal(watch.afterValidation([0, 0.5], 0), null);
  for (let i = 0; i < 4; i++) t.equal(watch.afterValidation([0, 0.009], 0), null);
  t.equal(watch.afterValidation([0, 0.009], 0), 'low_success');
});

t.test('a run without success continues while its return rises', async t => {
  const watch = new EarlyStopping(DEFAULT_EARLY_STOPPING);
  for (let i = 0; i < 20; i++) t.equal(watch.afterValidation([0], i - 30), null);
  const resumed = new EarlyStopping(DEFAULT_EARLY_STOPPING, JSON.parse(JSON.stringify(watch.state)));
  for (let i = 0; i < 4; i++) t.equal(resumed.afterValidation([0], -15), null);
  t.equal(resumed.afterValidation([0], -15), 'low_success');
});

t.test('its state survives JSON', async t => {
  const watch = new EarlyStopping(DEFAULT_EARLY_STOPPING);
  for (let i = 0; i < 4; i++) watch.afterCollection(0, 1);
  const resumed = new EarlyStopping(DEFAULT_EARLY_STOPPING, JSON.parse(JSON.stringify(watch.state)));
  t.equal(resumed.afterCollection(0, 1), 'empty_batches');
});

t.test('0 turns a rule off', async t => {
  const watch = new EarlyStopping({
    ...DEFAULT_EARLY_STOPPING,
    emptyBatches: 0,
    stdSteps: 0,
    successValidations: 0,
  });
  for (let i = 0; i < 40; i++) {
    t.equal(watch.afterCollection(0, i < 10 ? 1 : 0), null);
    t.equal(watch.afterValidation([0], 0), null);
  }
});

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

import t from 'tap';
import { DEFAULT_EARLY_STOPPING, EarlyStopping } from './early-stopping.ts';

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

import t from 'tap';
import { needsReference } from './derived.ts';
import { scheduledValue, settingsAt } from './schedules.ts';
import type { CoefficientSchedule } from './sections/algorithm.ts';
import { settingsOf } from './settings.test-data.ts';

const schedule = (over: Partial<CoefficientSchedule>): CoefficientSchedule => ({
  kind: 'linear',
  from: 0.1,
  to: 0.5,
  begin: 1,
  end: null,
  values: [],
  ...over,
});
const course = (one: CoefficientSchedule, steps = 5) =>
  [1, 2, 3, 4, 5].map(step => Math.round(1e6 * scheduledValue(one, step, steps)) / 1e6);

t.test('linear and cosine schedules begin and end on their values, and hold before and after', async t => {
  t.same(course(schedule({})), [0.1, 0.2, 0.3, 0.4, 0.5]);
  t.same(course(schedule({ begin: 2, end: 4 })), [0.1, 0.1, 0.3, 0.5, 0.5]);
  t.same(course(schedule({ kind: 'cosine' })), [0.1, 0.158579, 0.3, 0.441421, 0.5]);
  t.same(course(schedule({ begin: 3, end: 3 })), [0.1, 0.1, 0.1, 0.5, 0.5]);
});

t.test('steps take the last value that has begun', async t => {
  const values = [
    { from_step: 2, value: 0.7 },
    { from_step: 4, value: 0 },
  ];
  t.same(course(schedule({ kind: 'steps', values })), [0.1, 0.7, 0.7, 0, 0]);
});

t.test('an iteration has the scheduled coefficients in their places, and metrics of them alone', async t => {
  const plain = settingsOf({});
  t.equal(settingsAt(plain, 3).settings, plain, 'without schedules nothing is copied');
  const settings = settingsOf({
    training: { steps: 11 },
    schedules: {
      entropy_coefficient: { from: 0.02, to: 0 },
      kl_coefficient: { kind: 'steps', values: [{ from_step: 6, value: 0.3 }] },
    },
  });
  const { settings: middle, metrics } = settingsAt(settings, 6);
  t.equal(middle.loss.entropy_coefficient, 0.01);
  t.equal(middle.loss.kl.coefficient, 0.3);
  t.equal(middle.loss.clip_low, settings.loss.clip_low);
  t.same(metrics, { 'actor/entropy_coeff': 0.01, 'actor/kl_coef': 0.3 });
  t.ok(needsReference(settings), 'a KL term that begins later needs its reference from the start');
});

import t from 'tap';
import { type RegimeMeasurement, type RegimeState, watchRegime } from './collapse-metrics.ts';

const GIVEN = { entropy: 0.1, mi_share: 0.1 };

/** Regime of each measurement of entropy, information and information of later turns; alarms at the end. */
function watched(
  measurements: readonly (readonly [entropy: number, miShare: number, later?: number])[],
  given: typeof GIVEN | null,
) {
  let state: RegimeState | undefined;
  const alarms: string[] = [];
  const rows = measurements.map(([entropy, miShare, laterMiShare], i) => {
    const measured: RegimeMeasurement = { step: 5 * i, entropy, miShare, laterMiShare };
    const result = watchRegime(state, measured, given);
    // As a checkpoint keeps it.
    state = JSON.parse(JSON.stringify(result.state)) as RegimeState;
    alarms.push(...result.alarms);
    return result.metrics;
  });
  return { regimes: rows.map(row => row['collapse/regime']), rows, alarms, state: state! };
}

t.test('entropy and information name four regimes', async t => {
  for (const [measurement, regime] of [
    [[1.5, 0.5], 0],
    [[1.5, 0.01], 1],
    [[0.02, 0.5], 2],
    [[0.02, 0.01], 3],
  ] as const) {
    t.same(watched([measurement], GIVEN).regimes, [regime]);
  }
});

t.test(
  'long thoughts with all the information are diverse, however small their information per token',
  async t => {
    t.same(watched([[1, 1]], GIVEN).regimes, [0]);
  },
);

t.test('thresholds are half the median of the first three measurements; nothing is named before', async t => {
  const { regimes, rows, state } = watched(
    [
      [2, 0.9],
      [1, 0.3],
      [3, 0.5],
      [1.1, 0.26],
    ],
    null,
  );
  t.same(regimes, [undefined, undefined, 0, 0]);
  t.equal(rows[2]['collapse/entropy_threshold'], 1);
  t.equal(rows[3]['collapse/mi_share_threshold'], 0.25);
  t.equal(state.first.length, 3);
  const [, , low] = watched(
    [
      [2, 0],
      [2, -0.1],
      [2, 0.02],
    ],
    null,
  ).rows;
  t.equal(low['collapse/mi_share_threshold'], 0.05, 'never lower');
  t.equal(low['collapse/regime'], 1);
});

t.test('a regime changes after two measurements in a row on the other side', async t => {
  const { regimes, alarms, state } = watched(
    [
      [1, 0.5],
      [1, 0.05],
      [1, 0.5],
      [1, 0.05],
      [1, 0.05],
      [0.01, 0.05],
      [0.01, 0.5],
      [0.01, 0.5],
    ],
    GIVEN,
  );
  t.same(regimes, [0, 0, 0, 0, 1, 1, 3, 2]);
  t.equal(alarms.length, 2);
  t.match(alarms[0], /^step 20: template collapse: .*information 5.0 % of its bound, low below 10.0 %/);
  t.match(alarms[1], /^step 30: low-entropy collapse/);
  t.same(
    state.history.map(({ regime }) => regime),
    ['diverse', 'template_collapse', 'low_entropy_collapse', 'compressed'],
  );
});

t.test('thoughts that ignore later observations raise one alarm', async t => {
  const { rows, alarms } = watched(
    [
      [1, 0.5, 0.5],
      [1, 0.5, 0.01],
      [1, 0.5, 0.01],
      [1, 0.5, 0.01],
      [1, 0.5],
    ],
    GIVEN,
  );
  t.same(
    rows.map(row => row['collapse/ignores_later_observations']),
    [0, 0, 1, 1, 1],
  );
  t.equal(alarms.length, 1);
  t.match(alarms[0], /^step 10: the reasoning depends on the first observation and hardly on later ones/);
});

import t from 'tap';
import type { Json } from '../../shared/json.ts';
import { readJsonLines } from '../tracking/jsonlines.ts';
import { silentProgress } from '../tracking/progress.ts';
import { trainRun } from './run.ts';
import type { RunFolder } from './run-folder/run-folder.ts';
import {
  learnedMetrics,
  MAX_MS,
  type Row,
  tinyRuns,
  trainingRows,
  trainTiny,
  weightsOf,
} from './runs.test-data.ts';

/** Learned metrics of a run, without those that depend on the clock and on the order of collection. */
const learned = (run: RunFolder) =>
  (readJsonLines(run.metrics) as Row[]).map(learnedMetrics).filter(row => Object.keys(row).length > 1);

const asynchronous = (max_staleness: number, steps: number, more: Json = {}) => ({
  rollout: { asynchronous: { max_staleness, ...(more as object) } },
  training: { steps, validate_every: 2, checkpoint_every: 2 },
});

t.test('asynchronous runs against a server', { timeout: MAX_MS }, async t => {
  const { settings, train, trainInTwo } = await tinyRuns(t);

  await t.test('staleness 0 equals synchronous training, bit for bit', async t => {
    const { training } = asynchronous(0, 4);
    const synchronous = await train('sync', { training });
    const streamed = await train('streamed', asynchronous(0, 4));
    t.ok(weightsOf(streamed).equals(weightsOf(synchronous)), 'weights');
    t.same(learned(streamed), learned(synchronous));
    for (const row of trainingRows(streamed)) {
      t.equal(row['rollouter/staleness_max'], 0);
      t.equal(row.stale_samples_processed, 0);
    }
  });

  await t.test('staleness 0: half, resume and half again equals the whole', async t => {
    const run = await trainInTwo('parted', asynchronous(0, 4), 3);
    const whole = await train('whole', asynchronous(0, 4));
    t.ok(weightsOf(run).equals(weightsOf(whole)), 'weights');
    t.same(learned(run), learned(whole));
  });

  for (const keep_stale_cache of [false, true]) {
    await t.test(`staleness 2, stale cache ${keep_stale_cache ? 'kept' : 'computed again'}`, async t => {
      const over = asynchronous(2, 8, { keep_stale_cache });
      const rows = trainingRows(await train(`ahead-${keep_stale_cache}`, over));
      t.equal(rows.length, 8);
      for (const row of rows) {
        t.ok(row['rollouter/staleness_max'] <= 2);
        t.ok(row['rollouter/staleness_mean'] <= row['rollouter/staleness_max']);
        t.ok(row['actor/off_policy_weight/max'] <= 2, 'truncated importance sampling by default');
        t.ok(Number.isFinite(row['actor/mismatch_kl']));
      }
      t.ok(
        rows.some(row => row.stale_samples_processed > 0),
        'collecting ran ahead',
      );
      t.ok(rows.some(row => Math.abs(row['actor/mismatch_kl']) > 1e-6));
      t.equal(rows.at(-1)!['training/episodes'], 8 * 16);
    });
  }

  await t.test('after a resume staleness starts again from zero and stays within its bound', async t => {
    const parted = settings('ahead-parted', asynchronous(1, 6));
    const stop = new AbortController();
    const half = {
      ...silentProgress,
      update: (done: number) => done === 3 && stop.abort(new DOMException('stop', 'AbortError')),
    };
    const run = await trainTiny(parted, half, stop.signal);
    await trainRun(run, parted, silentProgress, new AbortController().signal);
    const rows = trainingRows(run);
    t.same(
      rows.map(row => row.step),
      [1, 2, 3, 4, 5, 6],
    );
    t.ok(rows.every(row => row['rollouter/staleness_max'] <= 1));
    t.equal(rows[3]['rollouter/staleness_max'], 0, 'the first batch after it is fresh');
    t.equal(rows.at(-1)!['training/episodes'], 6 * 16);
  });

  await t.test('groups that the filter drops are collected again', async t => {
    const over = {
      ...asynchronous(1, 4),
      algorithm: { filter: { strategy: 'top_p', include_zero: false, fill: 'refill' } },
    };
    const rows = trainingRows(await train('refilled', over));
    t.equal(rows.length, 4);
    t.ok(rows.some(row => row['rollout/refill_rounds'] > 0));
  });
});

import t from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { grewBy, warmAndLater } from './memory.ts';
import { begun, requireSame, requireTrajectory, withStep } from './record.ts';
import { reportText } from './report.ts';
import type { StageReport } from './stage.ts';

/** Whether `npm run soak` would notice. */

const reply = (step: number, more: JsonObject = {}): JsonObject => ({
  episode_id: 'e',
  step,
  observation: `at ${step}`,
  reward: 0,
  terminated: false,
  truncated: false,
  ...more,
});

t.test('a client notices a step that was lost, doubled or changed', async t => {
  const start = begun({ episode_id: 'e', seed: 1, observation: 'start' });
  const one = withStep(start, 'Up', reply(1));
  const two = withStep(one, 'Down', reply(2));
  t.throws(
    () => withStep(one, 'Down', reply(3)),
    /step 2 of e was answered as step 3 of e: a step was lost or taken twice/,
  );
  t.throws(() => withStep(one, 'Down', reply(2, { episode_id: 'f' })), /of f/);
  t.throws(() => requireSame(two, reply(1)), /the server has step 1, its client saw 2/);
  t.throws(() => requireSame(two, reply(2, { observation: 'at 1' })), /its client saw "at 2"/);

  const records: JsonObject[] = [
    { observation: 'start' },
    { ...reply(1), action: 'Up' },
    { ...reply(2), action: 'Down' },
  ];
  requireTrajectory(two, records);
  t.throws(() => requireTrajectory(two, records.slice(0, 2)), /has 1 steps, its client took 2/);
  t.throws(() => requireTrajectory(one, records), /has 2 steps, its client took 1/);
  t.throws(() => requireTrajectory(two, [{ observation: 'x' }, ...records.slice(1)]), /began otherwise/);
  t.throws(
    () => requireTrajectory(two, [...records.slice(0, 2), { ...reply(2), action: 'Up' }]),
    /action 2 was "Down", not "Up"/,
  );
  t.throws(
    () => requireTrajectory(two, [...records.slice(0, 2), { ...reply(2, { reward: 1 }), action: 'Down' }]),
    /step 2 has reward 1, its client saw 0/,
  );
});

t.test('memory that grows is noticed, a peak is not', async t => {
  const mb = 1024 * 1024;
  const flat = warmAndLater([100, 101, 180, 102, 100, 103, 101, 180, 104].map(size => size * mb));
  t.same(flat, [101 * mb, 104 * mb]);
  t.equal(flat && grewBy(flat), undefined);
  t.equal(grewBy([100 * mb, 180 * mb]), 'memory grew from 100 MB to 180 MB');
  t.equal(warmAndLater([1, 2, 3]), undefined, 'too few to tell');
});

t.test('the report has a column for every stage, and says what was wrong', async t => {
  const counters = {
    steps: 100,
    retries: 1,
    expired: 3,
    verified: 4,
    replayed: 5,
    kills: 1,
    problems: new Map([['wrong_step' as const, 7]]),
    ttlMs: 1000,
  };
  const settings = { workers: 1, seconds: 10, clients: 4, ttlSeconds: 1, seed: 1, limitMs: 50 };
  const report: StageReport = {
    settings,
    counters,
    drops: 6,
    deaths: 7,
    seconds: 10,
    rssBytes: [100 * 1024 * 1024, 104 * 1024 * 1024],
    floods: {
      peakBytes: 150 * 1024 * 1024,
      seen: [20, 40].map(p99 => {
        const latencies = { count: 9, p50: p99 / 10, p99, most: p99, netP99: p99 / 2, ownP99: 1 };
        return { name: 'a flood', livez: latencies, step: latencies };
      }),
    },
    leaked: 0,
    violations: [],
    cut: false,
  };
  const wrong = {
    ...report,
    settings: { ...settings, workers: 2 },
    violations: ['a step was lost'],
    cut: true,
  };
  const text = reportText([report, wrong]);
  t.match(text, /^\| \| 1 workers \| 2 workers \(cut short\) \|$/m);
  t.match(text, /^\| steps\/s \| 10 \| 10 \|$/m);
  t.match(text, /^\| problems, by code \| wrong_step 7 \|/m);
  t.match(text, /^\| memory, warm → later \| 100 MB → 104 MB \|/m);
  t.match(text, /^\| memory, most during floods \| 150 MB \|/m);
  t.match(text, /^\| step during floods, p50 \/ p99 \/ net p99 ms \| 4\.0 \/ 40\.0 \/ 20\.0 \|/m);
  t.match(text, /^\| \*\*violations\*\* \| 0 \| 1 \|$/m);
  t.match(text, /^2 workers: a step was lost$/m);
  t.match(text, /^\| 1 workers: nothing lost, doubled or answered wrongly \| 0 \| 0 \| holds \|$/m);
  t.match(text, /^\| 2 workers: nothing lost, doubled or answered wrongly \| 0 \| 1 \| FAILS \|$/m);
  t.match(text, /^\| 1 workers: another client's net p99 in each flood \| 50 ms \| 20\.0 ms \| holds \|$/m);
  t.match(text, /^\| 1 workers: memory is flat \| .* \| 100 MB → 104 MB \| holds \|$/m);
});

import { readFileSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import t from 'tap';
import type { ProblemDocument } from '../../env-server/problems.ts';
import { lacksValkey, testStore, testValkey } from '../../env-server/store/valkey.test-data.ts';
import type { JsonObject } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';
import { until } from '../../test/until.test-data.ts';
import { stolenOf } from '../floods/probe.ts';
import { keepEvidence, type SoakCounters, storedEntries } from './evidence.ts';
import { memoryFault, memoryReport, peakFault } from './memory.ts';
import { Player } from './player.ts';
import { begun, requireSame, requireTrajectory, withStep } from './record.ts';
import { reportText } from './report.ts';
import type { StageReport } from './stage.ts';

/** The checks of `npm run soak` find the faults they look for. */

const MB = 1024 * 1024;

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
    { episode_id: 'e', observation: 'start' },
    { ...reply(1), action: 'Up' },
    { ...reply(2), action: 'Down' },
  ];
  requireTrajectory(two, records);
  t.throws(() => requireTrajectory(two, records.slice(0, 2)), /has 1 steps, its client took 2/);
  t.throws(() => requireTrajectory(one, records), /has 2 steps, its client took 1/);
  const begunAs = (more: JsonObject) => [{ ...records[0], ...more }, ...records.slice(1)];
  t.throws(() => requireTrajectory(two, begunAs({ observation: 'x' })), /began otherwise/);
  t.throws(
    () => requireTrajectory(two, begunAs({ episode_id: 'f' })),
    /the server plays "f" with 2 steps, its client e with 2/,
  );
  t.throws(
    () => requireTrajectory(two, [...records.slice(0, 2), { ...reply(2), action: 'Up' }]),
    /action 2 was "Down", not "Up"/,
  );
  t.throws(
    () => requireTrajectory(two, [...records.slice(0, 2), { ...reply(2, { reward: 1 }), action: 'Down' }]),
    /step 2 has reward 1, its client saw 0/,
  );
});

t.test('a client asks under another key when what it opened expired before it heard of it', async t => {
  const counters = (ttlMs: number): SoakCounters => ({
    ...{ steps: 0, retries: 0, expired: 0, verified: 0, replayed: 0, kills: 0 },
    problems: new Map(),
    ttlMs,
  });
  const game = { create: { env_id: 'E' }, actions: [0], repeatable: true };
  const gone = {
    ok: false,
    error: { code: 'request_key_expired', detail: 'they have ended' } as ProblemDocument,
  } as const;
  const expired = counters(-1);
  const patient = new Player('a', game, Random.fromSeed(1), expired);
  t.match(patient.next(), { op: 'create', request_key: 'a-1' });
  patient.take(undefined);
  t.match(patient.next(), { op: 'create', request_key: 'a-1' });
  patient.take(gone);
  t.match(patient.next(), { op: 'create', request_key: 'a-2' });
  t.equal(expired.expired, 1);

  const other = new Player('b', game, Random.fromSeed(1), counters(60_000));
  other.next();
  t.throws(() => other.take(gone), /request_key_expired: they have ended/, 'they cannot have expired yet');
});

t.test('a violation keeps what its player and the store have of its session', async t => {
  const data = t.testdir();
  const file = keepEvidence('a step was lost', { sessionId: 'sOne', lines: ['asked', 'heard'] }, data);
  t.teardown(() => rmSync(file));
  t.equal(readFileSync(file, 'utf8'), 'a step was lost\n\nasked\nheard\n\nin the store: 0\n');
});

t.test('the entries of a session are read from the file of its store', { skip: lacksValkey }, async t => {
  const valkey = await testValkey(t);
  const [a, b] = [await testStore(t, valkey, 'a'), await testStore(t, valkey, 'b')];
  const fresh = {
    settings: {},
    edition: 'e',
    groupId: null,
    pinned: false,
    ttlMs: 60_000,
    record: '"begun"',
  };
  await a.open(
    'me',
    'E',
    [9, 9, 9],
    [
      { ...fresh, id: 's1', serial: 1 },
      { ...fresh, id: 's2', serial: 2 },
    ],
  );
  await a.append('s1', 1, 2, 's', '"Süd\\r\\n"');
  await b.take('s1', undefined, 'me', 1000);
  t.equal(await a.append('s1', 1, 3, 's', '"late"'), 'fenced');
  const stored = () => storedEntries(dirname(valkey.address.slice('valkey+unix://'.length)), 's1');
  // While the disk is busy Valkey answers first.
  await until(() => stored().length === 3);
  t.same(stored(), ['XADD 1-1 k o b "begun"', 'XADD NOMKSTREAM 1-2 k s b "Süd\\r\\n"', 'XADD 2-0 k T b b']);
});

t.test('memory in use that grows is noticed, and processes that grow on after the floods', async t => {
  const samples = (live: readonly number[], rss: readonly number[]) =>
    live.map((size, i) => ({ liveBytes: size * MB, rssBytes: rss[i] * MB }));
  const before = samples([40, 41, 60], [170, 171, 172]);
  const flat = memoryReport(before, samples([43, 90, 42, 41], [300, 301, 302, 303]))!;
  t.same(flat, { live: [41 * MB, 42 * MB], rss: [171 * MB, 301 * MB, 303 * MB] });
  t.equal(memoryFault(flat, 1), undefined, 'the high-water mark of the floods stays');
  const leak = memoryReport(before, samples([60, 61, 62, 63], [300, 301, 302, 303]))!;
  t.equal(memoryFault(leak, 1), 'memory in use grew from 41 MB to 63 MB');
  const growing = memoryReport(before, samples([41, 41, 41, 41], [300, 310, 340, 350]))!;
  t.match(memoryFault(growing, 1), /^memory of the processes grew from 310 MB to 350 MB/);
  const large = memoryReport(before, samples([41, 41, 41, 41], [600, 600, 600, 600]))!;
  t.match(memoryFault(large, 1), /have 600 MB, more than 320 MB each/);
  t.equal(memoryFault(large, 2), undefined);
  t.match(peakFault(1000 * MB, 1), /had 1000 MB during the floods, more than 768 MB each/);
  t.equal(peakFault(1000 * MB, 2), undefined);
  t.equal(memoryReport(before, []), undefined, 'too few samples');
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
  const settings = { replicas: 1, seconds: 10, clients: 4, ttlSeconds: 1, seed: 1, limitMs: 50 };
  const report: StageReport = {
    settings,
    counters,
    drops: 6,
    deaths: 7,
    seconds: 10,
    memory: { live: [40 * MB, 41 * MB], rss: [100 * MB, 150 * MB, 152 * MB] },
    floods: {
      peakBytes: 150 * 1024 * 1024,
      seen: [20, 40].map(p99 => {
        const latencies = { count: 9, p50: p99 / 10, p99, most: p99, netP99: p99 / 2, ownP99: 1 };
        return { name: 'a flood', livez: latencies, step: latencies, load: 2 };
      }),
    },
    leaked: 0,
    violations: [],
    cut: false,
  };
  const wrong = {
    ...report,
    settings: { ...settings, replicas: 2 },
    violations: ['a step was lost'],
    cut: true,
  };
  const flooded = (netP99: number, ownP99: number) => {
    const latencies = { count: 9, p50: 1, p99: 900, most: 900, netP99, ownP99 };
    return { name: 'a flood', livez: latencies, step: latencies, load: 47.3 };
  };
  const p99Of = (replicas: number, ...seen: ReturnType<typeof flooded>[]) => {
    const stage = { ...report, settings: { ...settings, replicas }, floods: { peakBytes: 1, seen } };
    return reportText([stage]).match(/^.*net p99 in each flood.*$/m)?.[0];
  };
  t.match(p99Of(1, flooded(60, 1)), /\| 50 ms \| 60\.0 ms \| FAILS \|$/);
  t.match(
    p99Of(1, flooded(60, 90), flooded(10, 90)),
    /\| 60\.0 ms \| unknown in 1 of 2: other programs kept the machine busy, load 47 \|$/,
  );
  t.match(p99Of(1, flooded(60, 90), flooded(60, 1)), /\| FAILS \|$/);
  const text = reportText([report, wrong]);
  t.match(text, /^\| \| 1 replicas \| 2 replicas \(cut short\) \|$/m);
  t.match(text, /^\| steps\/s \| 10 \| 10 \|$/m);
  t.match(text, /^\| problems, by code \| wrong_step 7 \|/m);
  t.match(
    text,
    /^\| memory before → after the floods \| in use 40 MB → 41 MB, processes 100 MB → 150 MB → 152 MB \|/m,
  );
  t.match(text, /^\| memory, most during floods \| 150 MB \|/m);
  t.match(text, /^\| step during floods, p50 \/ p99 \/ net p99 ms \| 4\.0 \/ 40\.0 \/ 20\.0 \|/m);
  t.match(text, /^\| \*\*violations\*\* \| 0 \| 1 \|$/m);
  t.match(text, /^2 replicas: a step was lost$/m);
  t.match(text, /^\| 1 replicas: nothing lost, doubled or answered wrongly \| 0 \| 0 \| holds \|$/m);
  t.match(text, /^\| 2 replicas: nothing lost, doubled or answered wrongly \| 0 \| 1 \| FAILS \|$/m);
  t.match(text, /^\| 1 replicas: another client's net p99 in each flood \| 50 ms \| 20\.0 ms \| holds \|$/m);
  t.match(text, /^\| 1 replicas: memory during the floods is bounded \| .* \| 150 MB \| holds \|$/m);
  t.match(text, /^\| 1 replicas: memory is flat \| .* \| in use 40 MB .* 152 MB \| holds \|$/m);
});

t.test('time that a hypervisor took is read for each processor', async t => {
  const stat = [
    'cpu  30 0 20 100 0 0 0 9 0 0',
    'cpu0 10 0 10 50 0 0 0 7 0 0',
    'cpu1 20 0 10 50 0 0 0 2 0 0',
    'intr 5 0 1',
    'ctxt 4',
  ].join('\n');
  t.same(stolenOf(stat), [70, 20]);
  t.same(stolenOf(''), []);
});

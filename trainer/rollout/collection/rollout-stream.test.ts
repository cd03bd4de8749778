import { readFileSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';
import t, { type Test } from 'tap';
import type { Episode } from '../episode.ts';
import type { GroupPlan } from '../tag.ts';
import { scriptedAgent } from './collector.test-data.ts';
import type { GroupOutcome } from './group.ts';
import { RolloutStream, type StreamSettings, startCapacity } from './rollout-stream.ts';

const GROUP = 2;
const never = new AbortController().signal;

/** A collector with groups that end when the test says so. */
class HandCollector {
  readonly open = new Map<number, GroupPlan>();
  #onGroup: (outcome: GroupOutcome) => void = () => {};
  failure: unknown;

  async play(
    plans: Iterable<GroupPlan> | AsyncIterable<GroupPlan>,
    options: { readonly signal?: AbortSignal },
    onGroup: (outcome: GroupOutcome) => void,
  ) {
    this.#onGroup = onGroup;
    for await (const plan of plans) {
      if (this.failure) throw this.failure;
      this.open.set(plan.groupId, plan);
    }
    options.signal?.throwIfAborted();
  }

  async complete(...numbers: number[]) {
    for (const n of numbers) {
      const plan = this.#take(n);
      const episodes = Array.from(
        { length: plan.size },
        () => ({ seed: n, turns: [] }) as Partial<Episode> as Episode,
      );
      this.#onGroup({ plan, episodes, lost: [] });
    }
    await settled();
  }

  async drop(...numbers: number[]) {
    for (const n of numbers) this.#onGroup({ plan: this.#take(n), error: new Error(`no luck with ${n}`) });
    await settled();
  }

  #take(n: number): GroupPlan {
    const plan = this.open.get(n)!;
    this.open.delete(n);
    return plan;
  }
}

async function settled() {
  for (let i = 0; i < 5; i++) await turn();
}

/** A stream in batches of four groups of two episodes. */
async function streamOf(t: Test, part: Partial<StreamSettings>) {
  const collector = new HandCollector();
  const stream = new RolloutStream({
    collector,
    agent: scriptedAgent(() => ''),
    sampling: { temperature: 1, topK: 0, topP: 1 },
    planAt: n => ({ groupId: n, tag: 'Lake', seed: 100 + n, size: GROUP }),
    batchGroups: 4,
    groupSize: GROUP,
    maxStaleness: 0,
    concurrency: 100,
    start: { next: 0, pending: [] },
    ...part,
  });
  t.teardown(() => stream.close());
  await settled();
  return { collector, stream, running: () => [...collector.open.keys()] };
}

t.test('without staleness a batch starts when the last has been trained on, and no sooner', async t => {
  const { collector, stream, running } = await streamOf(t, {});
  t.same(running(), [0, 1, 2, 3]);
  await collector.complete(2, 0, 3, 1);
  t.same(running(), []);
  const taken = await stream.take(4, never);
  t.same(
    taken.map(({ n, staleness }) => [n, staleness]),
    [0, 1, 2, 3].map(n => [n, 0]),
  );
  await settled();
  t.same(running(), [], 'not before the batch is trained on');
  stream.advance();
  await settled();
  t.same(running(), [4, 5, 6, 7]);
});

t.test('with staleness 1 a second batch runs ahead, and the oldest are handed out first', async t => {
  const { collector, stream, running } = await streamOf(t, { maxStaleness: 1 });
  t.equal(running().length, 8);
  await collector.complete(7, 6, 5, 4, 0);
  const first = await stream.take(4, never);
  t.same(
    first.map(({ n }) => n),
    [0, 4, 5, 6],
  );
  stream.advance();
  await settled();
  t.same(running(), [1, 2, 3, 8, 9, 10, 11]);
  await collector.complete(8, 9, 10, 1, 2);
  const second = await stream.take(4, never);
  t.same(
    second.map(({ n, staleness }) => [n, staleness]),
    [
      [1, 1],
      [2, 1],
      [7, 1],
      [8, 0],
    ],
  );
});

t.test(
  'nothing is handed out older than the bound: stragglers are given up, counted and replaced',
  async t => {
    const { collector, stream, running } = await streamOf(t, { maxStaleness: 1 });
    await collector.complete(1, 2, 3, 4);
    await stream.take(4, never);
    stream.advance();
    await settled();
    await collector.complete(5, 6, 7, 8);
    await stream.take(4, never);
    stream.advance();
    await settled();
    const before = running().length;
    await collector.complete(0, 9, 10, 11);
    stream.takeCounts();
    const pending = stream.take(4, never);
    await settled();
    t.equal(stream.takeCounts().staleGroups, 1);
    t.equal(running().length, before - 4 + 1, 'another starts in its place');
    await collector.complete(running()[0]);
    const taken = await pending;
    t.ok(taken.every(({ n, staleness }) => n !== 0 && staleness <= 1));
  },
);

t.test('groups that fail are replaced and counted; when nothing works the reason is thrown', async t => {
  const { collector, stream, running } = await streamOf(t, {});
  await collector.drop(1, 2);
  t.same(running(), [0, 3, 4, 5]);
  await collector.complete(0, 3, 4, 5);
  t.same(
    (await stream.take(4, never)).map(({ n }) => n),
    [0, 3, 4, 5],
  );
  t.match(stream.takeCounts(), {
    droppedGroups: 2,
    erroredEpisodes: 2 * GROUP,
    completedEpisodes: 4 * GROUP,
  });
  stream.advance();
  await settled();
  const next = stream.take(4, never);
  const failing = t.rejects(next, /no luck with 9/);
  await collector.drop(6, 7, 8, 9);
  await failing;
});

t.test('a fault of ours ends the stream with its reason', async t => {
  const { collector, stream } = await streamOf(t, {});
  collector.failure = new TypeError('the policy is gone');
  stream.advance();
  await t.rejects(stream.take(5, never), /the policy is gone/);
});

t.test('refused groups may be collected again for the same batch', async t => {
  const { collector, stream, running } = await streamOf(t, {});
  await collector.complete(0, 1, 2, 3);
  await stream.take(4, never);
  await settled();
  t.same(running(), []);
  stream.refuse(3);
  await settled();
  t.same(running(), [4, 5, 6]);
});

t.test('a stream that starts where another was plays again what that one had not handed out', async t => {
  const { collector, stream } = await streamOf(t, { maxStaleness: 1 });
  await collector.complete(0, 2, 3, 4, 6);
  await stream.take(4, never);
  stream.advance();
  await settled();
  const { position } = stream;
  t.same(position, { next: 12, pending: [1, 5, 6, 7, 8, 9, 10, 11] });
  const again = await streamOf(t, { maxStaleness: 1, start: position });
  t.same(
    again.running(),
    [1, 5, 6, 7, 8, 9, 10, 11],
    'and no more than the bound allows, counted again from zero',
  );
  t.same(again.stream.position, position);
});

t.test('waiting ends when the run is to stop', async t => {
  const { stream } = await streamOf(t, {});
  const stop = new AbortController();
  const waiting = t.rejects(stream.take(4, stop.signal), /asked to stop/);
  stop.abort(new Error('asked to stop'));
  await waiting;
});

t.test('concurrency bounds what is open', async t => {
  const { running } = await streamOf(t, { concurrency: 5 });
  t.same(running(), [0, 1]);
});

const file = new URL('../../../test/golden/closed_form.json', import.meta.url);
const golden = JSON.parse(readFileSync(file, 'utf8')) as { capacity: number };

const state = { maxStaleness: 2, version: 3, batchSize: 8, concurrency: 40, accepted: 40, running: 5 };

t.test('the capacity of the closed form', async t => {
  t.equal(startCapacity(state), golden.capacity);
});

t.test('the smaller of concurrency and staleness bounds it', async t => {
  t.equal(startCapacity({ ...state, concurrency: 6 }), 1);
  t.equal(startCapacity({ ...state, accepted: 48, running: 0 }), 0);
  const onPolicy = { ...state, maxStaleness: 0, version: 0, accepted: 0 };
  t.equal(startCapacity({ ...onPolicy, running: 0 }), 8, 'a batch and no more');
  t.equal(startCapacity({ ...onPolicy, accepted: 6, running: 2 }), 0);
});

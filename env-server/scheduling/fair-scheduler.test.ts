import t from 'tap';
import { type EventLoop, FairScheduler, type Lane, SLICE_MS } from './fair-scheduler.ts';

/** An event loop with a clock that only work moves. */
class FakeLoop implements EventLoop {
  time = 0;
  rounds = 0;
  #callbacks: (() => void)[] = [];

  now(): number {
    return this.time;
  }

  afterOthers(callback: () => void): void {
    this.#callbacks.push(callback);
  }

  /** Goes round once; false where nothing waited for it. */
  round(): boolean {
    const callbacks = this.#callbacks;
    this.#callbacks = [];
    if (callbacks.length > 0) this.rounds++;
    for (const callback of callbacks) callback();
    return callbacks.length > 0;
  }
}

function setUp() {
  const loop = new FakeLoop();
  const scheduler = new FairScheduler(loop);
  const done: string[] = [];
  /** Work that takes so long. */
  const work = (name: string, ms: number) => () => {
    loop.time += ms;
    done.push(name);
  };
  const flood = (lane: Lane, name: string, count: number, ms: number) => {
    for (let i = 0; i < count; i++) lane.run(work(name, ms));
  };
  const count = (name: string) => done.filter(each => each === name).length;
  return { loop, scheduler, done, work, flood, count };
}

t.test('work is carried out at once while nothing waits and the slice is not used up', async t => {
  const { loop, scheduler, done, work } = setUp();
  const lane = scheduler.lane('a');
  lane.run(work('first', 0.5));
  lane.run(work('second', SLICE_MS));
  t.same(done, ['first', 'second']);
  lane.run(work('third', 0.5));
  t.same(done, ['first', 'second'], 'the slice is used up');
  t.equal(scheduler.queued, 1);
  loop.round();
  t.same(done, ['first', 'second', 'third']);
  lane.run(work('fourth', 0.5));
  t.equal(done.at(-1), 'fourth', 'the event loop has gone round');
  t.equal(scheduler.queued, 0);
});

t.test('a client that comes during a flood has its turn after one slice', async t => {
  const { loop, scheduler, flood, count, work, done } = setUp();
  flood(scheduler.lane('flooder'), 'flood', 10_000, 0.5);
  loop.round();
  scheduler.lane('other').run(work('other', 0.1));
  const before = count('flood');
  loop.round();
  t.ok(done.includes('other'));
  t.ok(count('flood') - before <= 2 * (SLICE_MS / 0.5), 'no more than a slice was between');
});

t.test('slices are short, no matter what waits', async t => {
  const { loop, scheduler, flood } = setUp();
  flood(scheduler.lane('flooder'), 'flood', 500, 0.5);
  for (;;) {
    const before = loop.time;
    if (!loop.round()) break;
    t.ok(loop.time - before <= SLICE_MS + 0.5);
  }
  t.equal(scheduler.queued, 0);
});

t.test('clients share by time, not by connections or number of requests', async t => {
  const { loop, scheduler, flood, count } = setUp();
  for (let i = 0; i < 5; i++) flood(scheduler.lane('many'), 'many', 2000, 0.1);
  flood(scheduler.lane('one'), 'one', 2000, 1);
  while (loop.time < 1000) loop.round();
  const many = count('many') * 0.1;
  const one = count('one') * 1;
  t.ok(Math.abs(many - one) < 20, `${many} ms and ${one} ms`);
});

t.test('connections of a client share its time', async t => {
  const { loop, scheduler, flood, count } = setUp();
  flood(scheduler.lane('client'), 'short', 5000, 0.1);
  flood(scheduler.lane('client'), 'long', 500, 3);
  while (loop.time < 400) loop.round();
  const short = count('short') * 0.1;
  const long = count('long') * 3;
  t.ok(Math.abs(short - long) < 20, `${short} ms and ${long} ms`);
});

t.test('work that took long is paid for', async t => {
  const { loop, scheduler, flood, work, done } = setUp();
  const heavy = scheduler.lane('heavy');
  flood(scheduler.lane('light'), 'light', 1000, 1);
  heavy.run(work('heavy', 100));
  heavy.run(work('heavy', 100));
  while (scheduler.queued > 0) loop.round();
  const [first, second] = done.flatMap((name, at) => (name === 'heavy' ? [at] : []));
  t.ok(first < 10, 'it comes soon');
  t.ok(second - first > 90, `and then after ${second - first} ms of the other`);
});

t.test('a client that pauses for a moment does not get every turn', async t => {
  const { loop, scheduler, flood, count, work } = setUp();
  flood(scheduler.lane('steady'), 'steady', 5000, 1);
  const sly = scheduler.lane('sly');
  for (let i = 0; i < 200; i++) {
    sly.run(work('sly', 1.5));
    loop.round();
  }
  t.ok(count('steady') > 150, `${count('steady')} of the other`);
});

t.test('the rest of a task comes before what waits on its connection', async t => {
  const { loop, scheduler, done, work } = setUp();
  const lane = scheduler.lane('a');
  lane.run(() => {
    work('begun', SLICE_MS)();
    lane.goOn(work('gone on', 1));
  });
  lane.run(work('next', 1));
  while (scheduler.queued > 0) loop.round();
  t.same(done, ['begun', 'gone on', 'next']);
});

t.test('code knows for which connection it runs, and what it keeps for later does', async t => {
  const { scheduler } = setUp();
  const lane = scheduler.lane('a');
  const seen: unknown[] = [scheduler.current];
  const later = new Promise<void>(resolve => {
    lane.run(() => {
      seen.push(scheduler.current);
      const kept = scheduler.keep(() => seen.push(scheduler.current));
      void Promise.resolve()
        .then(kept)
        .then(() => resolve());
    });
  });
  seen.push(scheduler.current);
  await later;
  seen.push(scheduler.current);
  t.same(
    seen.map(each => each === lane),
    [false, true, false, true, false],
  );
});

t.test('a task that throws does not stop the others', async t => {
  const { loop, scheduler, done, work } = setUp();
  const lane = scheduler.lane('a');
  lane.run(work('first', SLICE_MS));
  lane.run(() => {
    throw new Error('broken');
  });
  lane.run(work('second', 1));
  t.throws(() => loop.round(), /broken/);
  loop.round();
  t.same(done, ['first', 'second']);
});

import { mock } from 'node:test';
import t from 'tap';
import { RunStore } from './run-store.ts';
import type { Source } from './source.ts';

/** Lets promises settle that wait for nothing but each other. */
const settle = () => new Promise(resolve => setImmediate(resolve));

/** A store over a source with metrics that can be read or not. @returns the store, and what was requested */
function storeOver({ exported = false } = {}) {
  const state = { fails: true, asked: [] as string[] };
  const source = {
    site: { exported },
    async get(name: string, { names }: { readonly names?: string } = {}) {
      if (name === 'run') return { metrics: ['a', 'b'], offset: 0 };
      state.asked.push(names!);
      if (state.fails) throw new Error('The server does not answer.');
      return {
        offset: 9,
        series: Object.fromEntries(names!.split(',').map(name => [name, { x: [1], y: [2] }])),
      };
    },
    live: () => new Promise(() => undefined),
  } as unknown as Source;
  return { store: new RunStore(source, 'run'), state };
}

t.test('metrics that could not be read are requested again, later each time', async t => {
  mock.timers.enable({ apis: ['setTimeout'] });
  t.teardown(() => mock.timers.reset());
  const { store, state } = storeOver();
  await store.open();
  await store.want(['a', 'b']);
  const waits: number[] = [];
  for (let waited = 0, failures = state.asked.length; waits.length < 9; ) {
    mock.timers.tick(500);
    await settle();
    waited += 500;
    if (state.asked.length === failures) continue;
    failures = state.asked.length;
    waits.push(waited);
    waited = 0;
  }
  t.same(waits, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]);
  t.equal(store.problemOf(['b']), 'The server does not answer.');

  state.fails = false;
  mock.timers.tick(60_000);
  await settle();
  t.equal(store.problemOf(['a', 'b']), undefined);
  t.same(store.series('a'), { x: [1], y: [2] });
  const { length } = state.asked;
  mock.timers.tick(600_000);
  await settle();
  t.equal(state.asked.length, length, 'what was read is not requested again');

  state.fails = true;
  await store.want(['c']);
  mock.timers.tick(1000);
  await settle();
  t.same(state.asked.slice(length), ['c', 'c'], 'the next failure waits a second again');
  store.close();
  mock.timers.tick(600_000);
  await settle();
  t.equal(state.asked.length, length + 2, 'a page that was left asks no more');
});

t.test('an exported page requests metrics once', async t => {
  mock.timers.enable({ apis: ['setTimeout'] });
  t.teardown(() => mock.timers.reset());
  const { store, state } = storeOver({ exported: true });
  await store.open();
  await store.want(['a']);
  mock.timers.tick(600_000);
  await settle();
  t.same(state.asked, ['a']);
});

t.test('a run with a deleted folder keeps what was read, and says so until it is back', async t => {
  let send: (name: string, data: unknown) => void = () => undefined;
  const source = {
    site: {},
    get: async () => ({ metrics: [], offset: 0, row: { step: 3 } }),
    live: (_: unknown, onEvent: typeof send) => {
      send = onEvent;
      return new Promise(() => undefined);
    },
  } as unknown as Source;
  const store = new RunStore(source, 'run');
  t.teardown(() => store.close());
  await store.open();
  send('gone', {});
  t.match(store.error, /folder of this run is gone/);
  t.match(store.detail, { row: { step: 3 } });
  send('row', { step: 4 });
  t.equal(store.error, undefined);
  t.match(store.detail, { row: { step: 4 } });
});

import { readFileSync } from 'node:fs';
import t from 'tap';
import { startCapacity } from './rollout-stream.ts';

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

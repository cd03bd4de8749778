import { Worker } from 'node:worker_threads';
import t from 'tap';
import { ParameterStore } from './parameter-store.ts';

const layout = [
  { name: 'a', shape: [2, 3] },
  { name: 'b', shape: [5] },
];

t.test('parameters are views of one buffer, apart from each other', async t => {
  const store = new ParameterStore(layout);
  store.array('a').fill(1);
  store.array('b').fill(2);
  t.equal(store.array('a').length, 6);
  t.equal(store.array('a').buffer, store.array('b').buffer);
  t.equal(store.size, 11);
  t.equal(
    store.flat.reduce((a, b) => a + b),
    6 + 10,
  );
  t.equal(store.array('b').byteOffset % 64, 0);
  t.strictSame([...store.array('a')], [1, 1, 1, 1, 1, 1]);
});

t.test('another thread writes what this one reads', async t => {
  const store = new ParameterStore(layout);
  const code = `
    const { workerData } = require('node:worker_threads');
    import(workerData.module).then(({ ParameterStore }) => {
      const store = ParameterStore.fromShared(workerData.shared);
      store.array('b')[4] = 7;
      store.touch();
    });`;
  const workerData = { module: new URL('./parameter-store.ts', import.meta.url).href, shared: store.share() };
  const before = store.version;
  await new Promise((resolve, reject) => {
    new Worker(code, { eval: true, workerData }).on('exit', resolve).on('error', reject);
  });
  t.equal(store.array('b')[4], 7);
  t.equal(store.version, before + 1);
});

t.test('an empty store of the same layout is zero', async t => {
  const store = new ParameterStore(layout);
  store.array('a')[1] = 3;
  t.equal(store.emptyLike().array('a')[1], 0);
});

t.test('faults are named', async t => {
  const store = new ParameterStore(layout);
  t.throws(() => store.array('c'), /no parameter 'c' in the store; it has a, b/);
  t.throws(() => store.array('a', [3, 2]), /'a' has shape \[2,3\], the graph wants \[3,2\]/);
  t.throws(() => new ParameterStore([...layout, ...layout]), /'a' is listed twice/);
  t.throws(() => new ParameterStore(layout, new SharedArrayBuffer(8)), /needs \d+ bytes, the buffer has 8/);
});

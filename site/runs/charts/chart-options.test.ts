import t from 'tap';

// The module reads the color scheme of the browser when it is loaded.
Object.assign(globalThis, { matchMedia: () => ({ matches: false }), devicePixelRatio: 1 });

t.test('a stacked curve is above the one before it, and its value is what it adds', async t => {
  const { addedAt, tableOf } = await import('./chart-options.ts');
  const curves = [3, 1, 4].map((value, i) => ({ label: String(i), x: [1], y: [value] }));
  const table = tableOf({ title: '', curves, stacked: true });
  t.same(table, [[1], [3], [4], [8]]);
  t.same(
    [1, 2, 3].map(at => addedAt(table, at, 0)),
    [3, 1, 4],
  );
});

t.test('curves of different lengths are read at their own ends', async t => {
  const { lastOf } = await import('./chart-options.ts');
  t.same(
    lastOf([
      [1, 2, 3],
      [5, 6, 7],
      [8, 9, 10],
    ]),
    [2, 2, 2],
  );
  t.same(
    lastOf([
      [1, 2, 3],
      [5, null, null],
      [undefined, 6, null],
      [null, null, null],
    ]),
    [null, 0, 1, null],
  );
  t.same(lastOf([[]]), [null]);
});

t.test('a curve has no value before its first step and after its last', async t => {
  const { readAt } = await import('./chart-options.ts');
  const shorter = [undefined, 5, undefined, undefined, null, 7, undefined];
  t.same(
    shorter.map((_, at) => readAt(shorter, at)),
    [null, 1, 1, 4, 4, 5, null],
  );
  t.equal(readAt([], 0), null);
});

t.test('limits begin at 0 unless all values are far from it, and a flat curve is drawn flat', async t => {
  const { limitsOf } = await import('./chart-options.ts');
  t.same(limitsOf(0.2, 1), [0, 1.04]);
  t.same(limitsOf(-1, 1), [-1.1, 1.1]);
  t.same(limitsOf(-4, -1), [-4.15, 0]);
  t.same(
    limitsOf(100, 110).map(value => Number(value.toFixed(6))),
    [99, 111],
  );
  t.same(limitsOf(0.002, 0.0020000000000000005), [0, 0.0025000000000000005]);
  t.same(limitsOf(-3, -3), [-3.75, 0]);
  t.same(limitsOf(0, 0), [0, 1]);
  t.same(limitsOf(null, null), [0, 1]);
  t.same(limitsOf(0.2, 1.5, [0, 1]), [0, 1.5]);
});

import t from 'tap';

t.test('limits begin at 0 unless all values are far from it, and a flat curve is drawn flat', async t => {
  // The module reads the color scheme of the browser when it is loaded.
  Object.assign(globalThis, { matchMedia: () => ({ matches: false }), devicePixelRatio: 1 });
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

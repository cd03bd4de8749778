import t from 'tap';
import { atOnce, inSlices, type Sliced } from './slices.ts';

function* counting(to: number): Sliced<number> {
  let sum = 0;
  for (let i = 1; i <= to; i++) {
    sum += i;
    yield;
  }
  return sum;
}

t.test('work has the same result at once and in slices', async t => {
  t.equal(atOnce(counting(100)), 5050);
  t.equal(await inSlices(counting(100)), 5050);
});

t.test('others get their turn between slices', async t => {
  let turns = 0;
  const others = setInterval(() => turns++, 1);
  function* busy(): Sliced<void> {
    while (turns < 2) yield;
  }
  await inSlices(busy());
  clearInterval(others);
  t.ok(turns >= 2, 'else the work would have no end');
});

t.test('inSlices throws what the work throws', async t => {
  // biome-ignore lint/correctness/useYield: it fails before it could
  function* failing(): Sliced<void> {
    throw new Error('no');
  }
  t.throws(() => atOnce(failing()), /no/);
  await t.rejects(inSlices(failing()), /no/);
});

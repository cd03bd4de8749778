import t from 'tap';
import { Random } from './random.ts';

t.test('the reference vector of xoshiro128**', async t => {
  const rng = Random.fromState([1, 2, 3, 4]);
  t.same([rng.uint32(), rng.uint32(), rng.uint32(), rng.uint32()], [11520, 0, 5927040, 70819200]);
});

t.test('the same seed draws the same, neighboring seeds do not', async t => {
  const draws = (seed: number) => {
    const rng = Random.fromSeed(seed);
    return Array.from({ length: 8 }, () => rng.uint32());
  };
  t.same(draws(10000), draws(10000));
  t.not(draws(10000)[0], draws(10001)[0]);
  t.not(draws(1)[0], draws(2 ** 32 + 1)[0], 'bits above 2^32 count');
});

t.test('a generator restored from its state continues identically', async t => {
  const rng = Random.fromSeed(7);
  rng.float();
  const twin = Random.fromState(JSON.parse(JSON.stringify(rng.state)));
  t.same([twin.float(), twin.integer(10), twin.normal()], [rng.float(), rng.integer(10), rng.normal()]);
});

t.test('draws are uniform', async t => {
  const rng = Random.fromSeed(3);
  const counts = new Array(6).fill(0);
  for (let i = 0; i < 60_000; i++) counts[rng.integer(6)]++;
  for (const count of counts) t.ok(Math.abs(count - 10_000) < 500, `${count} of 10000`);
  let mean = 0;
  let square = 0;
  for (let i = 0; i < 50_000; i++) {
    const x = rng.normal();
    mean += x / 50_000;
    square += (x * x) / 50_000;
  }
  t.ok(Math.abs(mean) < 0.03 && Math.abs(square - 1) < 0.05, `${mean} ${square}`);
});

t.test('weighted draws follow the weights and never take a zero', async t => {
  const rng = Random.fromSeed(4);
  const counts = [0, 0, 0];
  for (let i = 0; i < 10_000; i++) counts[rng.weighted([1, 0, 3])]++;
  t.equal(counts[1], 0);
  t.ok(Math.abs(counts[2] - 7500) < 250, String(counts[2]));
  t.throws(() => rng.weighted([0, 0]), /not all zero/);
});

t.test('bad arguments are named', async t => {
  t.throws(() => Random.fromSeed(-1), /seed must be an integer/);
  t.throws(() => Random.fromSeed(1.5), /seed must be an integer/);
  t.throws(() => Random.fromSeed(0).integer(0), /got 0/);
});

t.test('the seed is known until something is drawn', async t => {
  const rng = Random.fromSeed(7);
  t.equal(rng.seed, 7);
  rng.uint32();
  t.equal(rng.seed, undefined);
  t.equal(Random.fromState(Random.fromSeed(7).state).seed, undefined);
});

t.test('a generator moved to a state draws what one of that state draws', async t => {
  const ahead = Random.fromSeed(7);
  for (let i = 0; i < 5; i++) ahead.uint32();
  const moved = Random.fromSeed(1);
  moved.moveTo(ahead.state);
  t.equal(moved.seed, undefined);
  const follower = Random.fromSeed(1);
  follower.follow(ahead);
  t.equal(follower.seed, undefined);
  const expected = [ahead.float(), ahead.integer(10)];
  t.same([moved.float(), moved.integer(10)], expected);
  t.same([follower.float(), follower.integer(10)], expected, 'as does one that follows another');
});

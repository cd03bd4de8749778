import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import { bandit, PAIRS } from './bandit.ts';

const play = playing(bandit);

t.test('keeps the contract', async t => checkContract(t, bandit));

t.test('twelve pairs for training and eight others for tests', async t => {
  t.same([PAIRS.train.length, PAIRS.test.length], [12, 8]);
  const names = [...PAIRS.train, ...PAIRS.test].flat();
  t.equal(new Set(names).size, 40);
  t.ok(
    names.every(name => /^\S+$/.test(name)),
    'one word each',
  );
});

t.test('the low arm always pays 0.1, the high arm 1 in a quarter of the pulls', async t => {
  const state = await play.reset();
  const rng = Random.fromSeed(3);
  let paid = 0;
  for (let i = 0; i < 8000; i++) {
    const low = bandit.step(state, state.names.low, rng);
    if (low.reward !== 0.1 || !low.terminated || low.info.success) t.fail('low arm');
    const high = bandit.step(state, state.names.high, rng);
    if (!high.terminated || !high.info.success) t.fail('high arm');
    paid += high.reward;
  }
  t.ok(Math.abs(paid / 8000 - 0.25) < 0.02, String(paid / 8000));
});

t.test('arms are named in any case or by place; other words change nothing', async t => {
  const state = await play.reset({}, { low: 'Cook', high: 'Diver', first: 'high' });
  t.equal(play.text(state), 'Diver or Cook');
  t.same(bandit.validActions(state), ['Diver', 'Cook']);
  for (const low of ['cook', ' COOK ', 2]) t.equal((await play.step(state, low)).reward, 0.1);
  for (const wrong of ['Baker', 0, 3, '']) {
    const { state: after, terminated, info } = await play.step(state, wrong);
    t.equal(after, state);
    t.same([terminated, info.action_is_valid, info.success], [false, false, false]);
  }
  const { state: after } = await play.step(state, 'Cook');
  t.equal(play.text(after), 'Cook paid 0.1');
});

t.test('both orders and all pairs occur', async t => {
  const seen = new Set<string>();
  for (let seed = 0; seed < 400; seed++) seen.add(play.text(await play.reset({}, {}, seed)));
  t.equal(seen.size, 24);
});

t.test('equal names are refused', async t => {
  await t.rejects(play.reset({}, { low: 'Cook', high: 'cook' }), /both arms are called/);
});

t.test('the optimum is the arm that pays more on average', async t => {
  for (const [config, success] of [
    [{}, true],
    [{ high_probability: 0.05 }, false],
  ] as const) {
    t.equal((await play.finish(await play.reset(config), 'optimal', 1)).success, success);
  }
});

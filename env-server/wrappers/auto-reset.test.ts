import t from 'tap';
import { begin } from './wrapped.test-data.ts';

t.test('the step that ends an episode begins the next and keeps the last observation', async t => {
  const play = await begin([{ name: 'auto_reset' }]);
  await play.step('Right');
  await play.step('Right');
  const { reward, terminated, truncated, info } = await play.step('Right');
  t.same([reward, terminated, truncated], [1, true, false]);
  t.equal(info.final_observation, '___√\nO___');
  t.match(info.final_info, { success: true });
  t.equal(play.see(), 'P__G\nO___', 'the pinned level again');
  t.match(await play.step('Right'), { terminated: false });
  t.equal(play.see(), '_P_G\nO___');
});

t.test('counts the steps of each episode itself', async t => {
  const play = await begin([{ name: 'auto_reset' }], { config: { success_rate: 1, max_steps: 2 } });
  for (let episode = 0; episode < 3; episode++) {
    t.match(await play.step('Up'), { truncated: false });
    t.match(await play.step('Up'), { truncated: true, terminated: false });
  }
});

t.test('a random level is followed by another one, the same for the same seed', async t => {
  const levels = async () => {
    const play = await begin([{ name: 'auto_reset' }], { config: { max_steps: 1 }, options: {}, seed: 5 });
    const seen = [play.see()];
    for (let i = 0; i < 4; i++) {
      await play.step('Up');
      seen.push(play.see());
    }
    return seen;
  };
  const first = await levels();
  t.equal(new Set(first).size, 5);
  t.same(await levels(), first);
});

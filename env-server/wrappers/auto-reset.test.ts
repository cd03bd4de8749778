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
    t.match(await play.step('Up'), { truncated: true, terminated: false, info: { ended_by: 'time_limit' } });
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

t.test('wrappers around it begin again with every episode', async t => {
  const config = { success_rate: 1, max_steps: 3 };
  const limited = await begin([{ name: 'auto_reset' }, { name: 'time_limit', options: { max_steps: 4 } }], {
    config,
  });
  const texts = await begin([{ name: 'auto_reset' }, { name: 'action_text', options: { think: false } }], {
    config,
  });
  for (let episode = 0; episode < 3; episode++) {
    for (const play of [limited, texts]) {
      const up = play === texts ? '<answer>Up</answer>' : 'Up';
      t.match(await play.step(up), { truncated: false });
      t.match(await play.step(up), { truncated: false });
      t.match(await play.step(up), { truncated: true, restarted: true });
    }
  }
  const shown = await begin([{ name: 'auto_reset' }, { name: 'history' }], { config });
  for (let i = 0; i < 3; i++) await shown.step('Up');
  t.equal(shown.see(), 'P__G\nO___', 'nothing of the episode before is shown');
  const sticky = await begin(
    [{ name: 'auto_reset' }, { name: 'sticky_actions', options: { probability: 1 } }],
    { config },
  );
  for (let i = 0; i < 3; i++) await sticky.step('Up');
  t.match((await sticky.step('Right')).info, { executed_action: 'Right' }, 'no action came before');
});

t.test('an environment that begins its next episode itself is not wrapped again', async t => {
  await t.rejects(begin([{ name: 'auto_reset' }, { name: 'auto_reset' }]), /next episode itself already/);
});

import t from 'tap';
import { begin } from './wrapped.test-data.ts';

t.test('the last step returns the return, length and steps', async t => {
  const play = await begin([{ name: 'record' }]);
  await play.step('Right');
  t.notOk('episode' in (await play.step('Right')).info);
  t.same((await play.step(3)).info.episode, {
    return: 1,
    length: 3,
    steps: [
      { action: 'Right', reward: 0 },
      { action: 'Right', reward: 0 },
      { action: 3, reward: 1 },
    ],
  });
});

t.test('with observations when asked, and at the step limit', async t => {
  const config = { success_rate: 1, max_steps: 1 };
  const play = await begin([{ name: 'record', options: { observations: true } }], { config });
  t.match((await play.step('Right')).info.episode, {
    steps: [{ observation: 'P__G\nO___', action: 'Right', reward: 0 }],
  });
});

t.test('around auto_reset each episode is recorded by itself, and earlier records are forgotten', async t => {
  const play = await begin([{ name: 'auto_reset' }, { name: 'record' }]);
  for (let episode = 0; episode < 3; episode++) {
    await play.step('Right');
    await play.step('Right');
    t.match((await play.step('Right')).info.episode, { return: 1, length: 3, steps: { length: 3 } });
    t.same((play.state as { entries: unknown }).entries, []);
  }
});

t.test('states of a long episode share the steps before', async t => {
  const config = { success_rate: 1, max_steps: 300 };
  const play = await begin([{ name: 'record' }], { config });
  for (let i = 1; i < 300; i++) await play.step('Up');
  const { earlier } = play.state as { earlier: unknown[] };
  const { episode } = (await play.step('Up')).info as unknown as {
    episode: { length: number; steps: unknown[] };
  };
  t.same([episode.length, episode.steps.length], [300, 300]);
  t.equal((play.state as { earlier: unknown[] }).earlier[0], earlier[0]);
});

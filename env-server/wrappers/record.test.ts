import t from 'tap';
import { begin } from './wrapped.test-data.ts';

t.test('the last step tells return, length and steps', async t => {
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

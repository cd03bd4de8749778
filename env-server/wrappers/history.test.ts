import t from 'tap';
import { begin } from './wrapped.test-data.ts';

t.test('shows the last steps before the current observation', async t => {
  const play = await begin([{ name: 'history', options: { turns: 2 } }]);
  t.equal(play.see(), 'P__G\nO___');
  await play.step('Right');
  t.equal(play.see(), 'P__G\nO___\nAction: Right\nReward: 0\n\n_P_G\nO___');
  await play.step(3);
  await play.step('Right');
  t.equal(
    play.see(),
    '_P_G\nO___\nAction: Right\nReward: 0\n\n__PG\nO___\nAction: Right\nReward: 1\n\n___√\nO___',
  );
});

t.test('every form has its history', async t => {
  const play = await begin([{ name: 'history' }]);
  await play.step('Down');
  t.match(play.see('coord'), /Player: \(0, 0\).*Action: Down.*Player in hole: \(1, 0\)/s);
  t.match(play.see('structured'), {
    history: [{ observation: { player: [0, 0] }, action: 'Down', reward: 0 }],
    now: { player: [1, 0] },
  });
  await play.step(3);
  t.match(play.see('structured'), { history: [{}, { action: 'Right' }] }, 'ids by their names');
});

t.test('the observation space has room for the past steps', async t => {
  const play = await begin([{ name: 'history', options: { turns: 100 } }]);
  const { observationSpace } = play.environment.spec;
  for (let i = 0; i < 99; i++) await play.step('Up');
  t.ok(observationSpace.type === 'Text' && observationSpace.maxLength >= String(play.see()).length);
});

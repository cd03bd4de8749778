import t from 'tap';
import { begin } from './wrapped.test-data.ts';

t.test('with probability 1 every action repeats the first', async t => {
  const play = await begin([{ name: 'sticky_actions', options: { probability: 1 } }]);
  await play.step('Right');
  const { info } = await play.step('Down');
  t.equal(info.executed_action, 'Right');
  t.equal(play.see(), '__PG\nO___');
});

t.test('with probability 0 nothing sticks', async t => {
  const play = await begin([{ name: 'sticky_actions', options: { probability: 0 } }]);
  await play.step('Right');
  t.equal((await play.step('Left')).info.executed_action, 'Left');
});

t.test('sticks as often as asked, and never to an action that was none', async t => {
  const play = await begin([{ name: 'sticky_actions' }]);
  await play.step('jump');
  let stuck = 0;
  let before = 'Right';
  for (let i = 0; i < 4000; i++) {
    const chosen = before === 'Up' ? 'Left' : 'Up';
    const { executed_action: executed } = (await play.step(chosen)).info;
    if (executed === 'jump') t.fail('stuck to a jump');
    if (executed !== chosen) stuck++;
    before = executed as string;
  }
  t.ok(Math.abs(stuck / 4000 - 0.25) < 0.03, String(stuck / 4000));
});

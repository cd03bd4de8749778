import t from 'tap';
import { begin } from './wrapped.test-data.ts';

t.test('takes the penalty off every step', async t => {
  const play = await begin([{ name: 'step_penalty', options: { penalty: 0.25 } }]);
  t.equal((await play.step('Right')).reward, -0.25);
  t.equal((await play.step('jump')).reward, -0.25);
  await play.step('Right');
  t.equal((await play.step('Right')).reward, 0.75);
  t.same(play.environment.spec.rewardRange, [-0.25, 0.75]);
});

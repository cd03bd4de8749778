import t from 'tap';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import { sokoban } from '../environments/sokoban/sokoban.ts';
import { begin } from './wrapped.test-data.ts';

const ROOM = {
  environment: sokoban as AnyEnvironment,
  config: {},
  options: { layout: ['#####', '#PXO#', '#####'] },
};

t.test('limits rewards to the range', async t => {
  const play = await begin([{ name: 'reward_clip', options: { min: 0, max: 2 } }], ROOM);
  t.equal((await play.step('Up')).reward, 0);
  t.equal((await play.step('Right')).reward, 2);
  t.same(play.environment.spec.rewardRange, [0, 2]);
});

t.test('an empty range is refused', async t => {
  await t.rejects(begin([{ name: 'reward_clip', options: { min: 2 } }], ROOM), /max 1 is smaller than min 2/);
});

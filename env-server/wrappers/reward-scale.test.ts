import t from 'tap';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import { sokoban } from '../environments/sokoban/sokoban.ts';
import { begin } from './wrapped.test-data.ts';

const ROOM = {
  environment: sokoban as AnyEnvironment,
  config: {},
  options: { layout: ['#####', '#PXO#', '#####'] },
};

t.test('multiplies rewards and their range', async t => {
  const play = await begin([{ name: 'reward_scale', options: { factor: 0.1 } }], ROOM);
  const { reward, info } = await play.step('Right');
  t.ok(Math.abs(reward - 1.09) < 1e-12);
  const parts = Object.values(info.rewards as { readonly [name: string]: number });
  t.ok(Math.abs(parts.reduce((sum, part) => sum + part) - reward) < 1e-12, 'its named parts add up to it');
  const [least, most] = play.environment.spec.rewardRange;
  t.ok(Math.abs(least + 0.11) < 1e-12 && Math.abs(most - 1.09) < 1e-12);
});

t.test('a negative factor turns the range round', async t => {
  const { environment } = await begin([{ name: 'reward_scale', options: { factor: -1 } }], ROOM);
  t.same(environment.spec.rewardRange, [-10.9, 1.1]);
});

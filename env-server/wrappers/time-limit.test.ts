import t from 'tap';
import { begin } from './wrapped.test-data.ts';

t.test('truncates at the limit, and not where the episode ends by itself', async t => {
  const play = await begin([{ name: 'time_limit', options: { max_steps: 3 } }]);
  t.match(await play.step('Up'), { truncated: false });
  t.match(await play.step('Up'), { truncated: false });
  t.match(await play.step('Up'), { truncated: true, terminated: false });
  t.equal(play.environment.spec.maxEpisodeSteps, 3);

  const won = await begin([{ name: 'time_limit', options: { max_steps: 3 } }]);
  await won.step('Right');
  await won.step('Right');
  t.match(await won.step('Right'), { truncated: false, terminated: true, reward: 1 });
});

t.test('the limit must be given', async t => {
  await t.rejects(begin([{ name: 'time_limit' }]), /max_steps/);
});

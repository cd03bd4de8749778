import t from 'tap';
import { begin } from './wrapped.test-data.ts';

t.test('truncates at the limit, and not where the episode ends by itself', async t => {
  const play = await begin([{ name: 'time_limit', options: { max_steps: 3 } }]);
  t.match(await play.step('Up'), { truncated: false });
  t.match(await play.step('Up'), { truncated: false });
  t.match(await play.step('Up'), { truncated: true, terminated: false, info: { ended_by: 'time_limit' } });
  t.equal(play.environment.spec.maxEpisodeSteps, 3);

  const won = await begin([{ name: 'time_limit', options: { max_steps: 3 } }]);
  await won.step('Right');
  await won.step('Right');
  t.match(await won.step('Right'), {
    truncated: false,
    terminated: true,
    reward: 1,
    info: { ended_by: 'goal' },
  });
});

t.test('the limit must be given', async t => {
  await t.rejects(begin([{ name: 'time_limit' }]), /max_steps/);
});

t.test('around auto_reset the limit ends an episode and begins the next', async t => {
  const play = await begin([{ name: 'auto_reset' }, { name: 'time_limit', options: { max_steps: 2 } }]);
  for (let episode = 0; episode < 3; episode++) {
    t.match(await play.step('Right'), { truncated: false });
    const last = await play.step('Right');
    t.match(last, { truncated: true, terminated: false, restarted: true, info: { ended_by: 'time_limit' } });
    t.equal(last.info.final_observation, '__PG\nO___');
    t.equal(play.see(), 'P__G\nO___');
  }
});

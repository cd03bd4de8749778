import t from 'tap';
import { bandit } from '../environments/bandit/bandit.ts';
import type { AnyEnvironment } from '../environments/core/environment.ts';
import { countdown } from '../environments/countdown/countdown.ts';
import { begin } from './wrapped.test-data.ts';

t.test('with probability 0 actions are done as chosen', async t => {
  const play = await begin([{ name: 'random_actions', options: { probability: 0 } }]);
  await play.step('Right');
  t.equal(play.see(), '_P_G\nO___');
});

t.test('with probability 1 all four actions are done, equally often', async t => {
  const play = await begin([{ name: 'random_actions', options: { probability: 1 } }]);
  const counts = [0, 0, 0, 0, 0];
  for (let i = 0; i < 4000; i++) {
    const { info } = await play.environment.step(play.state, 'Up', play.rng);
    counts[info.executed_action as number]++;
  }
  t.equal(counts[0], 0);
  for (const count of counts.slice(1)) t.ok(Math.abs(count - 1000) < 150, String(count));
});

t.test('draws from the valid actions where they are listed', async t => {
  const play = await begin([{ name: 'random_actions', options: { probability: 1 } }], {
    environment: bandit as AnyEnvironment,
    config: {},
    options: { low: 'Cook', high: 'Diver' },
  });
  t.ok(['Cook', 'Diver'].includes((await play.step('nobody')).info.executed_action as string));
});

t.test('refuses an environment without drawable actions', async t => {
  const environment = countdown as AnyEnvironment;
  await t.rejects(begin([{ name: 'random_actions' }], { environment, config: {}, options: {} }), {
    code: 'invalid_request',
  });
});

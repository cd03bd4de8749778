import t from 'tap';
import { settingsOf } from '../config/settings.test-data.ts';
import { episodeOf, turnOf } from '../data/episodes.test-data.ts';
import { levelHash, validationGroups, validationMetrics, validationPlan } from './validation.ts';

t.test('validation levels are the same every time: a seed each from 123, tag after tag', async t => {
  const settings = settingsOf({
    tags: { Lake: { env_id: 'FrozenLake-v0' }, Arms: { env_id: 'Bandit-v0' } },
    validation: { episodes: 3, tags: ['Lake', 'Arms'] },
  });
  t.same(validationGroups(validationPlan(settings)), [
    { groupId: 0, tag: 'Lake', seed: 123, size: 1 },
    { groupId: 1, tag: 'Lake', seed: 124, size: 1 },
    { groupId: 2, tag: 'Arms', seed: 125, size: 1 },
  ]);
});

t.test('metrics stand under val-env, with the interval of each tag and the whole', async t => {
  const episodes = [
    episodeOf({ success: true, turns: [turnOf({ reward: 1, tokens: [0, 4] })] }),
    episodeOf({ groupId: 1, turns: [turnOf({ penalty: -0.5, tokens: [0, 2] })] }),
    episodeOf({ groupId: 2, tag: 'Arms', success: true, turns: [turnOf({ reward: 0.5 })] }),
  ];
  const metrics = validationMetrics(episodes, 4);
  t.equal(metrics['val-env/Lake/success'], 0.5);
  t.ok(metrics['val-env/Lake/success_low'] > 0.09 && metrics['val-env/Lake/success_high'] < 0.91);
  t.equal(metrics['val-env/Arms/episodic_return'], 0.5);
  t.ok(Math.abs(metrics['val-env/success'] - 2 / 3) < 1e-12);
  t.ok(Math.abs(metrics['val-env/return'] - 1 / 3) < 1e-12);
  t.equal(metrics['val-env/response_length'], 2);
});

t.test('levels differ as the environment says, or by environment and first observation', async t => {
  const level = (environmentId: string, ...states: string[]) =>
    levelHash({ environmentId, turns: states.map(state => turnOf({ state })) });
  t.equal(level('A', 'x', 'y'), level('A', 'x'));
  t.not(level('A', 'x'), level('B', 'x'));
  t.not(level('A', 'x'), level('A', 'y'));
  const named = { environmentId: 'A', levelId: 'room', turns: [turnOf({ state: 'x' })] };
  t.equal(levelHash(named), levelHash({ ...named, turns: [turnOf({ state: 'y' })] }));
});

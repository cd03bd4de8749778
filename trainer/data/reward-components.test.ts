import t from 'tap';
import { sumComponents } from '../../shared/reward-components.ts';
import { tagMetrics } from './episode-metrics.ts';
import { episodeOf, turnOf } from './episodes.test-data.ts';
import { checkComponents, episodeComponents, trainedReturn } from './reward-components.ts';

const episode = episodeOf({
  turns: [
    turnOf({ reward: 1, penalty: -0.5, rewards: { correct: 1, style: 0.25 } }),
    turnOf({ reward: 2, rewards: { style: 0.5 } }),
  ],
});

t.test('named rewards of steps are added up; what is not a finite number is left out', async t => {
  t.same(sumComponents([{ rewards: { a: 1, b: 2 } }, {}, { rewards: { a: 0.5 } }]), { a: 1.5, b: 2 });
  const named = JSON.parse('{"constructor": 1, "__proto__": 2, "toString": 3}');
  const sums = sumComponents([{ rewards: named }, { rewards: named }])!;
  t.same(Object.entries(sums), [
    ['constructor', 2],
    ['__proto__', 4],
    ['toString', 6],
  ]);
  t.same(
    sumComponents([{ rewards: { a: 'much', b: Number.NaN, c: null } }, { rewards: [1] }, { rewards: 3 }]),
    undefined,
  );
});

t.test('weights choose what an episode earns in training; without them it is the plain return', async t => {
  t.equal(trainedReturn(episode, null), 2.5);
  t.equal(trainedReturn(episode, { style: 4, format_penalty: 2 }), 3 - 1);
  t.equal(trainedReturn(episodeOf(), { style: 1 }), 0);
  t.same(episodeComponents(episode, { style: 0, reward: 1, missing: 1 }), {
    style: 0.75,
    reward: 3,
    missing: 0,
  });
});

t.test('a component that no episode has is refused with the existing ones', async t => {
  t.throws(() => checkComponents([episode], { stile: 1 }), {
    message:
      'algorithm.reward_components names stile, which no step of this iteration returned in info.rewards; there are reward, format_penalty, correct, style',
  });
  t.doesNotThrow(() => checkComponents([episode], { style: 1, format_penalty: 1 }));
  t.doesNotThrow(() => checkComponents([], { stile: 1 }));
});

t.test('metrics have the mean of each component by tag, 0 for episodes without it', async t => {
  const metrics = tagMetrics([episode, episodeOf({ turns: [turnOf()] })]);
  t.equal(metrics['Lake/rewards/correct'], 0.5);
  t.equal(metrics['Lake/rewards/style'], 0.375);
  t.equal(metrics['Lake/non-zero/rewards/style'], 0.75);
});

t.test('an environment that invents components has metrics of the first ones', async t => {
  const episodes = Array.from({ length: 100 }, (_, i) =>
    episodeOf({ turns: [turnOf({ rewards: { [`part_${i}`]: 1 } })] }),
  );
  const metrics = tagMetrics(episodes);
  t.ok(Object.keys(metrics).length < 160, `${Object.keys(metrics).length} metrics`);
  t.equal(metrics['Lake/success'], 0);
  t.equal(metrics['Lake/rewards/part_0'], 0.01);
  t.equal(metrics['Lake/rewards/part_99'], undefined);
});

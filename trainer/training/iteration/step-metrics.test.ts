import t from 'tap';
import { episodeOf, turnOf } from '../../data/episodes.test-data.ts';
import { batchStatistics } from './step-metrics.ts';

t.test('rewards of episodes and advantages of trained tokens, with their extremes', async t => {
  const episodes = [1, -0.5].map(reward => episodeOf({ turns: [turnOf({ reward })] }));
  const sequence = (advantages: number[], weight?: number) => ({
    tokenIds: new Int32Array(3),
    lossMask: Uint8Array.of(0, 1, 1),
    logProbs: new Float32Array(3),
    advantages: Float32Array.from(advantages),
    weight,
  });
  t.same(batchStatistics(episodes, [sequence([9, 1, -2]), sequence([9, 0, 5]), sequence([9, 99, 99], 0)]), {
    'critic/rewards/mean': 0.25,
    'critic/rewards/min': -0.5,
    'critic/rewards/max': 1,
    'critic/advantages/mean': 1,
    'critic/advantages/min': -2,
    'critic/advantages/max': 5,
  });
  t.same(batchStatistics([], []), {});
});

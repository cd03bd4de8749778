import t from 'tap';
import { turnStatistics } from './turn-statistics.ts';

t.test('advantages of last turns, of the others, and their correlation with the number of turns', async t => {
  const short = { lossMask: [0, 1, 1], advantages: [Number.NaN, 1, 3], turnEnds: [2] };
  const long = { lossMask: [1, 0, 1], advantages: [-2, Number.NaN, 0], turnEnds: [0, 2] };
  t.same(turnStatistics([short, long]), {
    'critic/advantages/std': Math.sqrt(3.25),
    'critic/advantages/zero_frac': 0.25,
    'critic/advantages/last_turn': 1,
    'critic/advantages/other_turns': -2,
    'critic/advantages/turns_correlation': -1,
  });
});

t.test('metrics without a value are absent', async t => {
  const one = { lossMask: [1], advantages: [2], turnEnds: [0] };
  t.same(turnStatistics([one, one]), {
    'critic/advantages/std': 0,
    'critic/advantages/zero_frac': 0,
    'critic/advantages/last_turn': 2,
  });
  t.same(turnStatistics([]), {});
});

import t from 'tap';
import { Random } from '../../shared/random.ts';
import {
  planCrossScores,
  type ReasonedEpisode,
  sampleFirstTurns,
  sampleTrajectories,
  thinkingMetrics,
} from './collapse-plan.ts';

const turn = (prompt: number[], reasoning: number[]) => ({ prompt, reasoning });
const episodes: ReasonedEpisode[] = [
  { groupId: 4, turns: [turn([1, 2], [10, 11]), turn([1, 2, 3], [12])] },
  { groupId: 4, turns: [turn([1, 2], [13])] },
  { groupId: 2, turns: [turn([5], []), turn([5, 6], [14])] },
  { groupId: 9, turns: [turn([7, 8, 9], [15, 16, 17])] },
];

t.test('every reasoning is scored behind every prompt, its tokens only', async t => {
  const pairs = sampleFirstTurns(episodes, 64, Random.fromSeed(1));
  t.same(
    pairs.map(pair => pair.column),
    [4, 4, 9],
  );
  const { requests, collect } = planCrossScores(pairs);
  t.equal(requests.length, 3 * 2);
  t.same(Array.from(requests[1].tokenIds), [7, 8, 9, 10, 11]);
  t.same(Array.from(requests[1].lossMask), [0, 0, 0, 1, 1]);
  const scores = requests.map(({ lossMask }, n) => {
    const logProbs = Float32Array.from(lossMask, on => (on ? -(n + 1) : 0));
    return { logProbs, entropies: logProbs };
  });
  const cross = collect(scores);
  t.same(cross.perToken, [
    [-1, -2],
    [-3, -4],
    [-5, -6],
  ]);
  t.same(cross.perSequence, [
    [-2, -4],
    [-3, -4],
    [-15, -18],
  ]);
  t.same(cross.matchedColumn, [0, 0, 1]);
});

t.test('sampling draws no pair of first turns twice, and only turns with reasoning', async t => {
  const pairs = sampleFirstTurns(episodes, 2, Random.fromSeed(2));
  t.equal(pairs.length, 2);
  t.not(pairs[0].reasoning, pairs[1].reasoning);
  const drawn = sampleTrajectories(episodes, 4, Random.fromSeed(3));
  t.same(
    drawn.map(pair => pair.column),
    [0, 1, 2, 3],
  );
  t.ok(drawn.every(pair => pair.reasoning.length > 0));
});

t.test('thinking is counted over all turns and over first turns', async t => {
  t.same(thinkingMetrics(episodes), {
    'collapse/valid_thinking_rate': 5 / 6,
    'collapse/first_turn_num_total': 4,
    'collapse/first_turn_num_valid': 3,
    'collapse/first_turn_valid_rate': 0.75,
  });
});

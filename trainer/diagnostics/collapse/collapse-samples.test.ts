import t from 'tap';
import { Random } from '../../../shared/random.ts';
import {
  fittingSamples,
  type ReasonedEpisode,
  sampleFirstTurns,
  sampleTrajectories,
  thinkingMetrics,
} from './collapse-metrics.ts';

const turn = (prompt: number[], reasoning: number[]) => ({ prompt, reasoning });
const episodes: ReasonedEpisode[] = [
  { groupId: 4, turns: [turn([1, 2], [10, 11]), turn([1, 2, 3], [12])] },
  { groupId: 4, turns: [turn([1, 2], [13])] },
  { groupId: 2, turns: [turn([5], []), turn([5, 6], [14])] },
  { groupId: 9, turns: [turn([7, 8, 9], [15, 16, 17])] },
];

t.test('sampling draws no first turns twice, and only turns with reasoning', async t => {
  const samples = sampleFirstTurns(episodes, 2, Random.fromSeed(2));
  t.equal(samples.length, 2);
  t.not(samples[0].reasoning, samples[1].reasoning);
  const drawn = sampleTrajectories(episodes, 4, Random.fromSeed(3));
  t.same(
    drawn.map(sample => sample.group),
    [0, 1, 2, 3],
  );
  t.ok(drawn.every(sample => sample.reasoning.length > 0));
});

t.test('thinking is counted over all turns and over first turns', async t => {
  t.same(thinkingMetrics(episodes), {
    'collapse/valid_thinking_rate': 5 / 6,
    'collapse/first_turn_num_total': 4,
    'collapse/first_turn_num_valid': 3,
    'collapse/first_turn_valid_rate': 0.75,
  });
});

t.test('prompts without room for the longest reasoning do not fit', async t => {
  const samples = sampleFirstTurns(episodes, 64, Random.fromSeed(1));
  const groups = (length: number) => fittingSamples(samples, length).map(sample => sample.group);
  t.same(groups(6).sort(), [4, 4, 9]);
  t.same(groups(5), [4, 4]);
});

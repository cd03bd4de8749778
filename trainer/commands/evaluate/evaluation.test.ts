import t from 'tap';
import { episodeOf, turnOf } from '../../data/episodes.test-data.ts';
import { evaluationRows, evaluationTable } from './evaluation.ts';

const episodes = [
  episodeOf({ success: true, turns: [turnOf({ reward: 1, actions: [1, 2], tokens: [0, 4] })] }),
  episodeOf({
    groupId: 1,
    turns: [turnOf({ penalty: -0.5, tokens: [0, 2] }), turnOf({ actions: [1], tokens: [3, 6] })],
  }),
  episodeOf({ groupId: 2, tag: 'Arms', turns: [turnOf()] }),
];

t.test('a row for each tag with success, interval and lengths', async t => {
  const [lake, arms] = evaluationRows('checkpoint', 'greedy', episodes);
  t.match(lake, {
    policy: 'checkpoint',
    tag: 'Lake',
    mode: 'greedy',
    episodes: 2,
    success: 0.5,
    return: 0.25,
    num_actions: 1.5,
    num_turns: 1.5,
    response_length: 3,
    format_valid: 0.75,
  });
  t.ok(lake.success_low < 0.1 && lake.success_high > 0.9);
  t.equal(arms.tag, 'Arms');
  t.equal(evaluationRows('random', 'reference', episodes)[0].response_length, null);
});

t.test('the table lines up', async t => {
  const lines = evaluationTable(evaluationRows('checkpoint', 'greedy', episodes)).split('\n');
  t.equal(lines.length, 4);
  t.match(lines[0], /^policy {6}tag {3}mode {4}success % {2}95 % interval/);
  t.match(lines[2], /^checkpoint {2}Lake {2}greedy {2}50\.0 {7}9\.5 to 90\.5/);
});

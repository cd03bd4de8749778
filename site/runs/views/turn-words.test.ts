import t from 'tap';
import type { Json } from '../../../shared/json.ts';
import type { SampleRecord, TrajectoryRecord, TurnRecord } from '../../../shared/run-folder/run-files.ts';
import { episodeEnd } from '../../components/ends.ts';
import { probability, tintScale } from './tokens.ts';
import { actionsBefore, actionsOf, leastLikely, statesOf, turnNumbers } from './turn-words.ts';

const lake = (player: readonly [number, number]): Json => ({
  rows: 4,
  cols: 4,
  player: [...player],
  holes: [],
});

const turn = (more: Partial<TurnRecord>): TurnRecord => ({
  ...{ state: '', actions_left: 5, actions: [], reward: 0, penalty: 0, info: {}, llm_response: '' },
  ...{ llm_raw_response: '', tokens: [0, 0], sample: 0 },
  ...more,
});

const sample: SampleRecord = {
  token_ids: [1, 2, 3, 4],
  mask: [0, 1, 1, 0],
  log_probs: [-9, -0.1, -2, -9],
  versions: [0, 3, 5, 0],
  values: [0, 0.5, 0.25, 0],
  advantages: [0, 1, -2, 0],
};

const episode = (turns: readonly TurnRecord[], more: Partial<TrajectoryRecord> = {}): TrajectoryRecord => ({
  ...{ episode_id: '', env_id: '', tag: '', group_id: 0, member: 0, seed: 0, server: '', success: false },
  ...{ terminated: true, truncated: false, return: 0, turns, samples: [sample] },
  ...more,
});

t.test('each sub-step of a turn is a state, with the effect of the ice', async t => {
  const played = turn({
    structured: lake([1, 0]),
    between: [lake([0, 0]), lake([0, 1])],
    actions: [4, 3, 3],
    action_names: ['Right', 'Right', 'Down'],
  });
  const states = statesOf(episode([played], { final_structured: lake([0, 1]) }), 0);
  t.same(
    states.map(({ caption, slipped }) => [caption, slipped]),
    [
      [undefined, undefined],
      ['Right', 'slid up'],
      ['Right', undefined],
      ['Down', 'slid into the edge'],
    ],
  );
});

t.test('a move against the edge is not a slip, and unrecorded sub-steps are one state', async t => {
  const first = turn({ structured: lake([0, 0]), actions: [4], action_names: ['Up'] });
  const second = turn({ structured: lake([0, 0]), actions: [3, 2], action_names: ['Right', 'Down'] });
  const record = episode([first, second], { final_structured: lake([1, 1]) });
  t.same(statesOf(record, 0)[1].slipped, undefined);
  t.match(statesOf(record, 1), [{}, { caption: 'Right, Down' }]);
  t.equal(statesOf(record, 1).length, 2);
  t.equal(actionsOf(turn({ actions: [2, { text: 'x' }] })), '2, {"text":"x"}');
});

t.test('the least likely token is among the trained ones', async t => {
  const record = episode([turn({ tokens: [1, 4] })]);
  t.match(leastLikely(record), { turn: 0, at: 2, logProb: -2 });
  t.same(turnNumbers(record.turns[0], sample), { value: 0.5, advantage: -0.5 });
  t.equal(leastLikely(episode([])), undefined);
});

t.test('tints have a fixed scale, and their sign sets the hue', async t => {
  t.same(tintScale('advantage', [sample])(-1), { hue: 'down', share: 0.5 });
  t.same(tintScale('log-probability', [])(0), { hue: 'amount', share: 0 });
  t.equal(tintScale('log-probability', [])(-20).share, 1);
  t.equal(tintScale('entropy', [])(Number.NaN).share, 0);
  t.equal(tintScale('weight version', [sample])(5).share, 1);
  t.same(
    [probability(-0.001), probability(Math.log(0.039)), probability(-30)],
    ['> 99 %', '3.9\u00a0%', '< 0.1 %'],
  );
});

t.test('an end is shown in words, an unknown one as its name', async t => {
  const said = (success: boolean, ended_by?: string) =>
    episodeEnd({ success, terminated: true, ended_by }).text;
  t.equal(said(false, 'max_actions'), 'Used up its actions');
  t.equal(said(false, 'bridge_fell_down'), 'Bridge fell down');
  const meanings = { hole: 'fell into a hole', max_turns: 'Out of breath' };
  const lake = (ended_by: string) =>
    episodeEnd({ success: false, terminated: true, ended_by }, meanings).text;
  t.same(['hole', 'max_turns', 'max_actions', 'constructor'].map(lake), [
    'Fell into a hole',
    'Out of breath',
    'Used up its actions',
    'Constructor',
  ]);
  t.equal(said(true), 'Solved');
  t.equal(episodeEnd({ success: false, terminated: false }).text, 'Ran out of turns');
});

t.test('an episode is repeated with the actions that its environment did not know', async t => {
  const played = episode([turn({ actions: ['Up'], sent: ['Fly', 'Up'] }), turn({ actions: ['Down'] })]);
  t.same(actionsBefore(played, 0), []);
  t.same(actionsBefore(played, 2), ['Fly', 'Up', 'Down']);
});

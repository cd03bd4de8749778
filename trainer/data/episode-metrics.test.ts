import { readFileSync } from 'node:fs';
import t from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { sumComponents } from '../../shared/step-info.ts';
import type { Turn } from '../rollout/episode.ts';
import {
  batchMetrics,
  checkComponents,
  episodeComponents,
  lengthMetrics,
  tagMetrics,
  trainedReturn,
  turnStatistics,
} from './episode-metrics.ts';
import { episodeOf, turnOf } from './episodes.test-data.ts';

interface GoldenTurn {
  readonly active_before: readonly number[];
  readonly after: readonly {
    readonly env_id: number;
    readonly last_turn: {
      actions: never[];
      reward: number;
      info: JsonObject;
      manager_invalid_action?: boolean;
    };
  }[];
}

t.test("the state manager's metrics of the golden episodes", async t => {
  const file = new URL('../../test/golden/manager_episodes.json', import.meta.url);
  const { episodes } = JSON.parse(readFileSync(file, 'utf8'));
  for (const golden of episodes) {
    const turns = new Map<number, Turn[]>();
    for (const turn of golden.turns as GoldenTurn[]) {
      for (const { env_id, last_turn } of turn.after.filter(row => turn.active_before.includes(row.env_id))) {
        const list = turns.get(env_id) ?? [];
        turns.set(env_id, list);
        list.push(turnOf({ actions: last_turn.actions, reward: last_turn.reward, info: last_turn.info }));
      }
    }
    const played = golden.initial.map((start: { env_id: number; group_id: number; tag: string }) =>
      episodeOf({
        tag: start.tag,
        groupId: start.group_id,
        turns: turns.get(start.env_id)!,
        success: turns.get(start.env_id)!.at(-1)!.info.success === true,
      }),
    );
    const actual = tagMetrics(played);
    for (const [name, wanted] of Object.entries(golden.aggregated as { [name: string]: number })) {
      if (/raw_reward|episodic_return|charts|^response_length/.test(name)) continue;
      t.ok(Math.abs(actual[name] - wanted) < 1e-6, `${name}: ${actual[name]}, golden ${wanted}`);
    }
  }
});

t.test('success and return over all tags, and the share of groups that are all alike', async t => {
  const returns = [
    [0, 1],
    [1, 1],
  ];
  const episodes = returns.flatMap((group, groupId) =>
    group.map(reward =>
      episodeOf({ groupId, success: reward === 1, turns: [turnOf({ reward, penalty: -0.5 })] }),
    ),
  );
  t.same(batchMetrics(episodes), { success: 0.75, return: 0.25, frac_reward_zero_std: 0.5 });
});

t.test('response lengths and the share at the limit', async t => {
  const episode = episodeOf({ turns: [turnOf({ tokens: [5, 8] }), turnOf({ tokens: [9, 17] })] });
  t.same(lengthMetrics([episode], 8), {
    response_length: 5.5,
    'response_length/max': 8,
    'response_length/clip_ratio': 0.5,
    'num_turns/mean': 2,
  });
});

t.test('ends have the share of a tag’s episodes, the most frequent ones a metric each', async t => {
  const ended = (tag: string, endedBy?: string) => episodeOf({ tag, endedBy, turns: [turnOf()] });
  const lake = ['hole', 'goal', 'hole', undefined].map(end => ended('Lake', end));
  const metrics = tagMetrics([...lake, ended('Room', 'solved')]);
  const ends = Object.fromEntries(Object.entries(metrics).filter(([name]) => name.includes('ended_by')));
  t.same(ends, { 'Lake/ended_by/hole': 0.5, 'Lake/ended_by/goal': 0.25, 'Room/ended_by/solved': 1 });

  const known = { Lake: { goal: 'Reached the goal', time_limit: 'Reached the step limit' } };
  t.equal(tagMetrics(lake, known)['Lake/ended_by/time_limit'], 0, 'one that did not happen is 0');
  t.equal(tagMetrics(lake, known)['Lake/ended_by/goal'], 0.25);

  const many = Array.from({ length: 100 }, (_, i) => ended('Lake', i < 50 ? 'frequent' : `end_${i}`));
  const names = Object.keys(tagMetrics(many)).filter(name => name.includes('ended_by'));
  t.equal(names.length, 16);
  t.equal(names[0], 'Lake/ended_by/frequent');
});

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

import { readFileSync } from 'node:fs';
import t from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import type { Turn } from '../rollout/episode.ts';
import { batchMetrics, lengthMetrics, tagMetrics } from './episode-metrics.ts';
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

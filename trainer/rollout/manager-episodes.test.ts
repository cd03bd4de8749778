import { readFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { rubiksCube } from '../../env-server/environments/rubikscube/rubikscube.ts';
import type { Json, JsonObject } from '../../shared/json.ts';
import { scriptedAgent } from './collection/collector.test-data.ts';
import { Collector } from './collection/collector.ts';
import { describeTags } from './described-tag.ts';
import type { Episode } from './episode.ts';
import { serve } from './server.test-data.ts';
import type { GroupPlan, Tag } from './tag.ts';

interface GoldenTurn {
  responses: { env_id: number; llm_raw_response: string; llm_response: string; actions: string[] }[];
  active_before: number[];
  active_after: number[];
  after: {
    env_id: number;
    last_turn: {
      actions_left: number;
      actions: number[];
      reward: number;
      info: JsonObject;
      llm_response: string;
    };
    next_state: string;
    actions_left: number;
    manager_invalid_action: boolean;
    penalty: number;
    terminated: boolean;
    truncated: boolean;
    num_actions: number;
  }[];
}

interface GoldenEpisodes {
  tags: string[];
  n_groups: number[];
  group_size: number;
  max_actions_per_turn: number;
  seeds: number[];
  initial: { env_id: number; group_id: number; tag: string; state: string; actions_left: number }[];
  turns: GoldenTurn[];
  final_metrics: { [name: string]: number }[];
  episode_reward_raw: number[];
  episode_penalty: number[];
}

const { episodes: GOLDEN } = JSON.parse(
  readFileSync(new URL('../../test/golden/manager_episodes.json', import.meta.url), 'utf8'),
) as { episodes: GoldenEpisodes[] };

const TOLERANCE = 1e-6;

/** The rows of a state without what stands above them. */
const gridOf = (state: string): string => state.slice(state.lastIndexOf(':') + 1).trim();

/** A tag of the golden file as it is played here: the same start, pinned. */
function setUp(
  tag: string,
  state: string,
): { environmentId: string; config: JsonObject; options: JsonObject } {
  if (tag.includes('Sokoban')) {
    return { environmentId: 'Sokoban-v0', config: { num_boxes: 1 }, options: { layout: gridOf(state) } };
  }
  if (tag.includes('FrozenLake')) {
    return {
      environmentId: 'FrozenLake-v0',
      config: { success_rate: 1 },
      options: { layout: gridOf(state) },
    };
  }
  if (tag === 'rubikscube') {
    return { environmentId: 'RubiksCube-v0', config: {}, options: { scramble: ["U'"] } };
  }
  const [, low, high] = /named (\w+) and (\w+)/.exec(state)!;
  return {
    environmentId: 'Bandit-v0',
    config: { high_probability: 0 },
    options: { low, high, first: 'low' },
  };
}

for (const golden of GOLDEN) {
  t.test(`scripted rollouts of ${golden.tags.join(' and ')}, to the letter`, async t => {
    const servers = await serve(t, {}, [rubiksCube]);
    const { group_size: size } = golden;
    // One tag a group: here a tag pins the start, there the seed does.
    const tags: Tag[] = [];
    const plans: GroupPlan[] = [];
    for (let i = 0; i < golden.initial.length; i += size) {
      const { group_id: groupId, tag, state, actions_left } = golden.initial[i];
      const name = `${tag}/${groupId}`;
      tags.push({
        name,
        ...setUp(tag, state),
        maxTurns: golden.turns.length,
        maxActionsPerTurn: golden.max_actions_per_turn,
        maxActionsPerTrajectory: actions_left,
        formatPenalty: -0.1,
      });
      plans.push({ groupId, tag: name, seed: golden.seeds[i], size });
    }
    const asked: number[][] = golden.turns.map(() => []);
    const agent = scriptedAgent(({ episode }) => {
      const id = episode.groupId * size + episode.member;
      asked[episode.turn - 1].push(id);
      return golden.turns[episode.turn - 1].responses.find(row => row.env_id === id)!.llm_raw_response;
    });
    const collector = new Collector({
      servers,
      tags: await describeTags(servers, tags),
      prompt: 'chat',
      response: { responseLength: 400, think: true },
      concurrency: 8,
    });
    const sampling = { temperature: 1, topK: 0, topP: 1 };
    const { episodes } = await collector.collect(plans, { agent, sampling, samplingSeed: 1 });

    t.equal(episodes.length, golden.initial.length);
    for (const [i, turn] of golden.turns.entries()) {
      t.same(asked[i].sort(), turn.active_before, `who plays turn ${i + 1}`);
      for (const id of turn.active_before) checkTurn(t, episodes[id], i, turn, id, names(golden.tags[0]));
    }
    for (const [id, episode] of episodes.entries()) {
      const raw = episode.turns.reduce((sum, turn) => sum + turn.reward, 0);
      t.ok(Math.abs(raw - golden.episode_reward_raw[id]) < TOLERANCE, `reward ${raw}`);
      t.equal(penaltyOf(episode), golden.episode_penalty[id]);
      checkMetrics(t, episode, episodes, golden.final_metrics[id]);
    }
  });
}

/** Arms have names here and numbers there. */
function names(tag: string): boolean {
  return tag.startsWith('Bandit');
}

function penaltyOf({ turns }: Episode, count = turns.length): number {
  return turns.slice(0, count).reduce((sum, turn) => sum + turn.penalty, 0);
}

function checkTurn(
  t: Test,
  episode: Episode,
  i: number,
  golden: GoldenTurn,
  id: number,
  byName: boolean,
): void {
  const after = golden.after.find(row => row.env_id === id)!;
  const { last_turn: wanted } = after;
  const turn = episode.turns[i];
  const isLast = episode.turns.length === i + 1;
  const spoken = golden.responses.find(row => row.env_id === id)!;
  t.equal(turn.rawResponse, spoken.llm_raw_response);
  t.equal(turn.response, wanted.llm_response);
  t.equal(turn.actionsLeft, wanted.actions_left);
  const actions: readonly Json[] = byName ? spoken.actions.slice(0, wanted.actions.length) : wanted.actions;
  t.same(turn.actions, actions);
  t.ok(Math.abs(turn.reward - wanted.reward) < TOLERANCE, `reward ${turn.reward}, golden ${wanted.reward}`);
  for (const key of ['action_is_effective', 'action_is_valid', 'success']) {
    t.equal(turn.info[key], wanted.info[key], key);
  }
  t.equal(turn.actions.length === 0, after.manager_invalid_action);
  t.equal(penaltyOf(episode, i + 1), after.penalty);
  const played = episode.turns.slice(0, i + 1).reduce((sum, one) => sum + one.actions.length, 0);
  t.equal(played, after.num_actions);
  const state = isLast ? episode.finalState! : episode.turns[i + 1].state;
  if (/^[#_OXPSG√\n]+$/.test(state)) t.equal(state, gridOf(after.next_state));
  t.equal(isLast && episode.terminated, after.terminated, 'terminated');
  t.equal(isLast && episode.terminated && !episode.success, after.truncated, 'truncated');
  t.equal(golden.active_after.includes(id), !(isLast && episode.terminated));
}

function checkMetrics(
  t: Test,
  episode: Episode,
  all: readonly Episode[],
  golden: { readonly [name: string]: number },
): void {
  const share = (pick: (turn: Episode['turns'][number]) => boolean): number =>
    episode.turns.filter(pick).length / episode.turns.length;
  const group = all.filter(other => other.groupId === episode.groupId);
  const own: { readonly [name: string]: number } = {
    success: episode.success ? 1 : 0,
    num_actions: episode.turns.reduce((sum, turn) => sum + turn.actions.length, 0),
    action_is_effective: share(turn => turn.info.action_is_effective === true),
    action_is_valid: share(turn => turn.info.action_is_valid === true),
    manager_invalid_action: share(turn => turn.actions.length === 0),
    [`pass@${group.length}`]: group.some(other => other.success) ? 1 : 0,
  };
  for (const [name, wanted] of Object.entries(golden)) {
    const key = name.slice(name.indexOf('/') + 1);
    // Always 0 in the reference program: its environments report no raw reward.
    if (key === 'raw_reward' || key === 'episodic_return') continue;
    t.ok(Math.abs(own[key] - wanted) < TOLERANCE, `${name}: ${own[key]}, golden ${wanted}`);
  }
}

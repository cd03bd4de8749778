import t from 'tap';
import { golden } from '../../../test/golden.test-data.ts';
import { estimateAdvantages } from '../../algorithms/advantages/registry.ts';
import { countOnes } from '../../algorithms/training-sequence.ts';
import { trainedReturn } from '../../data/episode-metrics.ts';
import { episodeOf, turnOf } from '../../data/episodes.test-data.ts';
import { allClosed, collectorOf, lakeOf, SAMPLING, seeded } from '../collection/collector.test-data.ts';
import { type Episode, withoutTurns } from '../episode.ts';
import { serve } from '../server.test-data.ts';
import type { GroupPlan } from '../tag.ts';
import {
  classOf,
  controlled,
  type KeptPrefix,
  learnPrefixes,
  NO_PREFIXES,
  type PrefixPoolSettings,
  playedTurns,
  prefixTurns,
  takePrefixes,
} from './prefix.ts';

const CONTROLLER = {
  target: 0.5,
  alpha: 0.05,
  deadzone: 0.03,
  step: 0.05,
  cooldown: 5,
  least: 0.05,
  most: 0.95,
};
const { cases } = golden<{
  cases: {
    selection: { kind: string; turns: number; ratio: number; cap: number | null; prefix_turns: number }[];
    classes: { successes: number; size: number; low: number; high: number; class: string }[];
    controller: {
      ratio: number;
      rates: (number | null)[];
      states: { ema: number; ratio: number; wait: number }[];
    }[];
    loss_masks: {
      length: number;
      turn_spans: [number, number][];
      prefix_turns: number;
      loss_mask: number[];
    }[];
    advantages: {
      prefix_rewards: number[];
      continuation_rewards: number[][];
      returns: number[];
      grpo: number[];
      rloo: number[];
    }[];
  };
}>('branching_prefix.json');
const near = (a: number, b: number) => Math.abs(a - b) < 1e-7;

t.test('lengths, classes and the controller are the golden ones', async t => {
  for (const { kind, turns, ratio, cap, prefix_turns } of cases.selection) {
    const found = prefixTurns(kind === 'too_hard' ? 'head_start' : 'handicap', turns, { ratio, cap });
    t.equal(found, prefix_turns, `${kind} ${turns} ${ratio} ${cap}`);
  }
  for (const { successes, size, class: wanted, ...bounds } of cases.classes)
    t.equal(classOf(successes, size, bounds), wanted);
  for (const { ratio, rates, states } of cases.controller) {
    let state = { ema: 0.5, ratio, wait: 0 };
    rates.forEach((rate, i) => {
      state = controlled(state, rate ?? undefined, CONTROLLER);
      const { ema, ratio: moved, wait } = states[i];
      t.ok(near(state.ema, ema) && near(state.ratio, moved) && state.wait === wait, `iteration ${i}`);
    });
  }
});

t.test('the loss mask leaves the prefix out, and its rewards do not count', async t => {
  for (const { length, turn_spans, prefix_turns, loss_mask } of cases.loss_masks) {
    const lossMask = new Uint8Array(length);
    for (const span of turn_spans) lossMask.fill(1, ...span);
    const episode = episodeOf({
      tokenIds: new Int32Array(length),
      lossMask,
      turns: turn_spans.map(tokens => turnOf({ tokens })),
    });
    t.same([...withoutTurns(episode, turn => turn < prefix_turns).lossMask], loss_mask);
    t.same(episode.lossMask, lossMask, 'the episode itself stays as it is');
  }
  for (const { prefix_rewards, continuation_rewards, returns, grpo, rloo } of cases.advantages) {
    const episodes = continuation_rewards.map(rewards =>
      episodeOf({
        turns: [...prefix_rewards, ...rewards].map(reward => turnOf({ reward })),
        prefix: { turns: prefix_rewards.length, kind: 'head_start' },
      }),
    );
    const found = episodes.map(episode => trainedReturn(episode, null));
    for (const [i, value] of found.entries()) t.ok(near(value, returns[i]));
    const sequences = found.map(value => ({ lossMask: [1], rewards: [value], groupId: 0 }));
    for (const [name, wanted] of Object.entries({ grpo, rloo })) {
      const { advantages } = estimateAdvantages(name, sequences);
      t.ok(
        advantages.every(([value], i) => near(value, wanted[i])),
        name,
      );
    }
  }
});

const LAKE = lakeOf(8);

/** An episode of a group, kept as one that others continue from turn 5 on. */
async function keptOf(
  servers: Awaited<ReturnType<typeof serve>>,
): Promise<{ kept: KeptPrefix; first: Episode }> {
  const collector = await collectorOf(servers, [LAKE], 16, undefined, 1200);
  const { episodes } = await collector.collect([{ groupId: 0, tag: 'Lake', seed: 5, size: 4 }], {
    agent: seeded,
    sampling: SAMPLING,
    samplingSeed: 2,
  });
  const first = episodes[2];
  return {
    first,
    kept: {
      kind: 'head_start',
      tag: 'Lake',
      seed: first.seed,
      dynamicsSeed: first.dynamicsSeed!,
      step: 1,
      attempts: 4,
      successes: 1,
      turns: 8,
      played: playedTurns(first, 5),
    },
  };
}

t.test(
  'continuations begin where the episode was, are paid for once, and train on their own turns',
  async t => {
    const servers = await serve(t);
    const { kept, first } = await keptOf(servers);
    // As a checkpoint gives it back.
    const prefix = JSON.parse(JSON.stringify(kept)) as KeptPrefix;
    const plan: GroupPlan = { groupId: 7, tag: 'Lake', seed: kept.seed, size: 4, prefix };
    const collector = await collectorOf(servers, [LAKE], 16, undefined, 1200);
    const options = { agent: seeded, sampling: SAMPLING, samplingSeed: 3 };
    const { episodes, metrics } = await collector.collect([plan], options);
    t.equal(episodes.length, 4);
    t.match(metrics, { 'branch/env_steps': 5 + 4 * 3, 'branch/replayed_steps': 5 });
    const start = first.turns[4].tokens[1];
    for (const episode of episodes) {
      t.same(episode.prefix, { turns: 5, kind: 'head_start' });
      t.same(
        episode.turns.slice(0, 5).map(({ state, rawResponse }) => [state, rawResponse]),
        first.turns.slice(0, 5).map(({ state, rawResponse }) => [state, rawResponse]),
      );
      t.equal(episode.turns[5].state, first.turns[5].state);
      t.same(episode.tokenIds.subarray(0, start), first.tokenIds.subarray(0, start), 'never tokenized again');
      t.equal(countOnes(episode.lossMask.subarray(0, start)), 0);
      t.ok(countOnes(episode.lossMask.subarray(start)) > 0);
      t.equal(episode.turns.length, 8, 'the caps continue from there');
      t.equal(episode.turns[5].actionsLeft, 10 - 5);
      t.equal(episode.reseeds!.length, 1);
    }
    t.equal(
      new Set(episodes.map(({ turns }) => turns.map(turn => turn.response + turn.state).join())).size,
      4,
    );
    t.same((await collector.collect([plan], options)).episodes, episodes, 'equal seeds, equal continuations');
    await allClosed(servers);
  },
);

t.test('a prefix that comes out differently costs its group and nothing more', async t => {
  const servers = await serve(t);
  const { kept } = await keptOf(servers);
  const bent = { ...kept, played: kept.played.map(one => ({ ...one, after: `${one.after}!` })) };
  const collector = await collectorOf(servers, [LAKE], 16, undefined, 1200);
  const plans: GroupPlan[] = [
    { groupId: 0, tag: 'Lake', seed: kept.seed, size: 4, prefix: bent },
    { groupId: 1, tag: 'Lake', seed: 6, size: 2 },
  ];
  const { episodes, dropped } = await collector.collect(plans, {
    agent: seeded,
    sampling: SAMPLING,
    samplingSeed: 3,
  });
  t.equal(episodes.length, 2);
  t.match(dropped[0].error.message, /playing FrozenLake-v0 with seed 5 again gave another episode at step 1/);
});

const POOL: PrefixPoolSettings = {
  schedule: 'adaptive',
  share: 0.25,
  low: 0.3,
  high: 0.7,
  directions: 'both',
  remaining: { ratio: 0.25, cap: null },
  taken: { ratio: 0.25, cap: null },
  maxAge: 1,
  capacity: 3,
  controller: CONTROLLER,
  reverseOver: 100,
};
const groupOf = (groupId: number, successes: number, turns = 8, more: Partial<Episode> = {}): Episode[] =>
  Array.from({ length: 10 }, (_, member) =>
    episodeOf({
      groupId,
      member,
      seed: 100 + groupId,
      dynamicsSeed: 7 + member,
      success: member < successes,
      turns: Array.from({ length: turns }, (_, i) => turnOf({ state: `${groupId}.${member}.${i}` })),
      ...more,
    }),
  );

t.test('hard groups keep a success, easy ones a failure, and others nothing', async t => {
  const groups = [
    groupOf(0, 0),
    groupOf(1, 2),
    groupOf(2, 5),
    groupOf(3, 9),
    groupOf(4, 10),
    groupOf(5, 1, 1),
  ];
  const at = { step: 4, seed: 1 };
  const { state, metrics } = learnPrefixes(NO_PREFIXES, groups, POOL, at);
  t.match(metrics, {
    'prefix/class/all_fail': 1,
    'prefix/class/too_hard': 2,
    'prefix/class/balanced': 1,
    'prefix/class/too_easy': 1,
    'prefix/class/all_pass': 1,
    'prefix/dropped_short': 1,
    'prefix/pool': 2,
  });
  const [hard, easy] = [...state.pool].sort((a, b) => a.seed - b.seed);
  t.match(hard, { kind: 'head_start', seed: 101, step: 4, successes: 2 });
  t.equal(hard.played.length, 6, 'all but a quarter');
  t.ok(hard.dynamicsSeed! < 9, 'one that succeeded');
  t.match(easy, { kind: 'handicap', seed: 103 });
  t.equal(easy.played.length, 2);
  t.equal(easy.dynamicsSeed, 16, 'the one that failed');
  t.same(learnPrefixes(NO_PREFIXES, groups, POOL, at).state, state, 'the same seed, the same choice');
  t.equal(JSON.stringify(JSON.parse(JSON.stringify(state))), JSON.stringify(state), 'plain data');
  const only = learnPrefixes(NO_PREFIXES, groups, { ...POOL, directions: 'handicap' }, at);
  t.same(
    only.state.pool.map(({ kind }) => kind),
    ['handicap'],
  );
});

t.test('a kept episode is used once, while it is young, and the most promising come first', async t => {
  const groups = [groupOf(1, 1), groupOf(2, 2), groupOf(3, 9), groupOf(4, 8)];
  const { state } = learnPrefixes(NO_PREFIXES, groups, { ...POOL, capacity: 10 }, { step: 4, seed: 1 });
  const { taken, left, old } = takePrefixes(state, POOL, { step: 5, groups: 8 });
  t.same(
    taken.map(({ seed }) => seed),
    [102, 104],
  );
  t.equal(left.pool.length, 2);
  t.equal(old, 0);
  t.equal(takePrefixes(left, POOL, { step: 6, groups: 8 }).old, 2);
  t.equal(
    takePrefixes(state, { ...POOL, share: 1 }, { step: 5, groups: 3 }).taken.length,
    2,
    'one group stays new',
  );
  t.equal(learnPrefixes(NO_PREFIXES, groups, POOL, { step: 4, seed: 1 }).state.pool.length, 3, 'capacity');
});

t.test(
  'the pass rate of continuations moves the ratio of their kind; reverse uses the iteration',
  async t => {
    const won = groupOf(9, 10, 8, { prefix: { turns: 6, kind: 'head_start' } });
    let state = NO_PREFIXES;
    for (let step = 1; step <= 3; step++) state = learnPrefixes(state, [won], POOL, { step, seed: 1 }).state;
    t.ok(
      near(state.controllers['head_start Lake'].ratio, 0.3),
      'harder after its average left the dead zone',
    );
    t.ok(near(state.controllers['handicap Lake'].ratio, 0.25));
    t.equal(learnPrefixes(state, [won], POOL, { step: 4, seed: 1 }).metrics['prefix/class/all_pass'], 0);
    const reverse: PrefixPoolSettings = { ...POOL, schedule: 'reverse', reverseOver: 10 };
    const lengths = [1, 6, 10].map(step => {
      const { pool } = learnPrefixes(NO_PREFIXES, [groupOf(1, 5, 20)], reverse, { step, seed: 1 }).state;
      return pool[0].played.length;
    });
    t.same(lengths, [18, 9, 1], 'from the end backwards');
  },
);

import t from 'tap';
import type { Agent } from '../agents/agent.ts';
import { seeded } from '../branching/branching.test-data.ts';
import { RewardFault } from '../rewards/reward-hook.ts';
import { CAPS, serve } from '../server.test-data.ts';
import type { GroupPlan, Tag } from '../tag.ts';
import { collectorOf, SAMPLING } from './collector.test-data.ts';

const LAKE: Tag = {
  name: 'Lake',
  environmentId: 'FrozenLake-v0',
  config: { size: 8, p_frozen: 1, success_rate: 0.5 },
  ...CAPS,
  maxTurns: 4,
  maxActionsPerTurn: 1,
};
const planOf = (every: number, vine = true): GroupPlan => ({
  groupId: 3,
  tag: 'Lake',
  seed: 77,
  size: 2,
  ...(vine ? { vine: { clones: 3, every, freshLuck: true } } : {}),
});
const asked = { agent: seeded, sampling: SAMPLING, samplingSeed: 5 };

t.test('continuations are played from before each turn, and change nothing in the episode', async t => {
  const servers = await serve(t);
  const collector = await collectorOf(servers, [LAKE], 16, undefined, 900);
  const { episodes, metrics } = await collector.collect([planOf(1)], asked);
  const { episodes: plain } = await collector.collect([planOf(1, false)], asked);
  t.same(
    episodes.map(({ turns, tokenIds, lossMask }) => [
      turns.map(({ response, state }) => [response, state]),
      tokenIds,
      lossMask,
    ]),
    plain.map(({ turns, tokenIds, lossMask }) => [
      turns.map(({ response, state }) => [response, state]),
      tokenIds,
      lossMask,
    ]),
  );
  for (const { turns, continuations, reseeds } of episodes) {
    t.same(
      continuations!.map(own => own.length),
      turns.map(() => 3),
    );
    t.equal(reseeds, undefined, 'the episode keeps its luck');
  }
  // Two members of 4 turns; three continuations each of 4, 3, 2 and 1 turns.
  t.match(metrics, {
    'branch/env_steps': 2 * (4 + 3 * 10),
    'branch/clone_steps': 2 * 3 * 10,
    'branch/branches': 8,
    'branch/replayed_steps': 0,
  });
  t.ok(metrics['branch/open_sessions_max'] <= 2 * 4, 'an episode waits for its continuations');
  t.ok(
    metrics['branch/clone_tokens'] > 0 && metrics['branch/clone_tokens'] < metrics['branch/sampled_tokens'],
  );
  const again = await collector.collect([planOf(1)], asked);
  t.same(
    again.episodes.map(({ continuations }) => continuations),
    episodes.map(({ continuations }) => continuations),
    'the same seeds give the same values',
  );
  const sparse = await collector.collect([planOf(3)], asked);
  t.same(
    sparse.episodes[0].continuations!.map(own => own.length),
    [3, 0, 0, 3],
  );
});

t.test(
  'a continuation without a reward is left out, one that fails costs the group, and nothing stays open',
  async t => {
    const servers = await serve(t);
    const collector = await collectorOf(servers, [LAKE], 16, undefined, 900);
    let count = 0;
    const { episodes, metrics } = await collector.collect([planOf(1)], {
      ...asked,
      reward: {
        name: 'hook',
        mode: 'add',
        ask: async () => {
          if (count++ === 0) throw new RewardFault({ name: 'hook' }, 'gave none');
          return { reward: 1 };
        },
        close: async () => {},
      } as never,
    });
    t.equal(metrics['branch/lost_leaves'], 1);
    t.equal(episodes.flatMap(({ continuations }) => continuations!.flat()).length, 2 * 4 * 3 - 1);
    t.ok(
      episodes.every(({ continuations }) => continuations!.flat().every(({ reward }) => reward >= 1)),
      'the reward of the hook counts in values, too',
    );
    let turns = 0;
    const broken: Agent = {
      ...seeded,
      respond: async turn => {
        if (++turns === 9) throw new Error('out of words');
        return seeded.respond(turn);
      },
    };
    await t.rejects(collector.collect([planOf(1)], { ...asked, agent: broken }), /out of words/);
    const open = async () => (await servers.servers[0].call('list', {})).sessions.length;
    while ((await open()) > 0) await new Promise(resolve => setImmediate(resolve));
  },
);

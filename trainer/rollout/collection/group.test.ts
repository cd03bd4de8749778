import t from 'tap';
import type { GroupPlan } from '../tag.ts';
import { allClosed, collecting, failingOnce, lakeOf, SEEDED, speechless } from './collector.test-data.ts';

const LAKE = lakeOf(4);
const planOf = (every: number, vine = true): GroupPlan => ({
  groupId: 3,
  tag: 'Lake',
  seed: 77,
  size: 2,
  ...(vine ? { vine: { clones: 3, every, freshLuck: true } } : {}),
});

t.test('continuations are played from before each turn, and change nothing in the episode', async t => {
  const { collector } = await collecting(t, LAKE);
  const { episodes, metrics } = await collector.collect([planOf(1)], SEEDED);
  const { episodes: plain } = await collector.collect([planOf(1, false)], SEEDED);
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
  const again = await collector.collect([planOf(1)], SEEDED);
  t.same(
    again.episodes.map(({ continuations }) => continuations),
    episodes.map(({ continuations }) => continuations),
    'the same seeds give the same values',
  );
  const sparse = await collector.collect([planOf(3)], SEEDED);
  t.same(
    sparse.episodes[0].continuations!.map(own => own.length),
    [3, 0, 0, 3],
  );
});

t.test(
  'a continuation without a reward is left out, one that fails costs the group, and nothing stays open',
  async t => {
    const { servers, collector } = await collecting(t, LAKE);
    const { episodes, metrics } = await collector.collect([planOf(1)], {
      ...SEEDED,
      reward: failingOnce(),
    });
    t.equal(metrics['branch/lost_leaves'], 1);
    t.equal(episodes.flatMap(({ continuations }) => continuations!.flat()).length, 2 * 4 * 3 - 1);
    t.ok(
      episodes.every(({ continuations }) => continuations!.flat().every(({ reward }) => reward >= 1)),
      'the reward of the hook counts in values, too',
    );
    await t.rejects(collector.collect([planOf(1)], { ...SEEDED, agent: speechless() }), /out of words/);
    await allClosed(servers);
  },
);

import t from 'tap';
import { golden } from '../../../test/golden.test-data.ts';
import { leafShares } from '../../algorithms/advantages/tree/tree.ts';
import { countOnes } from '../../algorithms/training-sequence.ts';
import type { Agent } from '../agents/agent.ts';
import {
  allClosed,
  collecting,
  collectorOf,
  failingOnce,
  lakeOf,
  SAMPLING,
  SEEDED,
  seeded,
  speechless,
} from '../collection/collector.test-data.ts';
import type { Episode } from '../episode.ts';
import { serve } from '../server.test-data.ts';
import type { GroupPlan, Tag } from '../tag.ts';
import { branchProbability, leavesPerRoot, plannedTurns, type TreePlan } from './tree-plan.ts';

const LAKE = lakeOf(6);
const TREE: TreePlan = {
  where: 'fixed',
  roots: 2,
  children: 2,
  turns: [2, 4],
  branches: 1,
  depth: 1,
  base: 0.5,
  weight: 0.2,
  freshLuck: true,
};
const planOf = (tree: Partial<TreePlan> = {}, more: Partial<GroupPlan> = {}): GroupPlan => {
  const whole = { ...TREE, ...tree };
  return {
    groupId: 3,
    tag: 'Lake',
    seed: 77,
    size: whole.roots * leavesPerRoot(whole),
    tree: whole,
    ...more,
  };
};
const leafOf = (episode: Episode) => episode.nodes!.at(-1)!;

t.test('leaves of a tree of fixed turns share what came before, token by token', async t => {
  const { servers, collector } = await collecting(t, LAKE);
  const plan = planOf();
  const { episodes, metrics } = await collector.collect([plan], SEEDED);
  t.same(episodes.map(leafOf), ['0.0.0', '0.0.1', '0.1.0', '0.1.1', '1.0.0', '1.0.1', '1.1.0', '1.1.1']);
  t.same(
    episodes.map(({ member }) => member),
    [0, 1, 2, 3, 4, 5, 6, 7],
  );
  const [first, second, third] = episodes;
  t.same(first.nodes, ['0', '0', '0.0', '0.0', '0.0.0', '0.0.0']);
  const common = first.turns[3].tokens[1];
  t.same(first.tokenIds.subarray(0, common), second.tokenIds.subarray(0, common), 'never tokenized again');
  t.same(
    first.turns.slice(0, 4).map(({ state, response }) => [state, response]),
    second.turns.slice(0, 4).map(({ state, response }) => [state, response]),
  );
  // A shared turn is trained once: all of the first leaf, and only the remaining turns of the others.
  const trained = episodes.map(({ lossMask }) => countOnes(lossMask));
  const lengths = episodes.map(({ turns }) => turns.map(({ tokens: [start, end] }) => end - start));
  const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);
  t.same(trained.slice(0, 4), [
    sum(lengths[0]),
    sum(lengths[1].slice(4)),
    sum(lengths[2].slice(2)),
    sum(lengths[3].slice(4)),
  ]);
  t.equal(sum(trained), metrics['branch/sampled_tokens']);
  // Turns that were played: 2 roots of 2, 4 chains of 2, 8 leaves of 2.
  t.match(metrics, {
    'branch/env_steps': 28,
    'branch/leaves': 8,
    'branch/branches': 6,
    'branch/replayed_steps': 0,
    'branch/branch_turn_mean': 20 / 6,
  });
  t.ok(metrics['branch/open_sessions_max'] <= 8);
  t.ok(metrics['branch/prefill_tokens'] > 0);
  t.not(third.turns[2].response + third.turns[3].response, '', 'branches have other draws');
  const futures = episodes.map(({ turns }) => turns.map(({ response, state }) => response + state).join());
  t.equal(new Set(futures).size, 8, 'no leaf is a copy of another');
  await allClosed(servers);
});

t.test('the same seeds give the same trees next to others; the lineage of a leaf replays it', async t => {
  const servers = await serve(t);
  const plan = planOf();
  const options = SEEDED;
  const { episodes } = await (await collectorOf(servers, [LAKE], 8, undefined, 900)).collect([plan], options);
  const again = await (await collectorOf(servers, [LAKE], 64, undefined, 900)).collect(
    [{ ...plan, groupId: 9, tree: { ...TREE, roots: 1 } }, plan],
    options,
  );
  const own = again.episodes.filter(({ groupId }) => groupId === 3);
  t.same(own, episodes);
  // By hand: create, act, and a fresh stream at each step of the lineage.
  const server = servers.servers[0];
  for (const { seed, dynamicsSeed, reseeds = [], turns } of episodes) {
    const actions = turns.flatMap(turn => [...(turn.sent ?? turn.actions)]);
    let { session_id } = await server.call('create', {
      env_id: LAKE.environmentId,
      config: LAKE.config,
      seed,
      ...(dynamicsSeed === undefined ? {} : { dynamics_seed: dynamicsSeed }),
    });
    const seen: string[] = [];
    for (const [step, action] of actions.entries()) {
      const reseed = reseeds.find(change => change.step === step);
      if (reseed) {
        const input = { session_id, dynamics_seed: reseed.dynamicsSeed };
        session_id = (await server.call('clone', input)).sessions[0].session_id;
      }
      seen.push((await server.call('step', { session_id, action })).observation as string);
    }
    t.same(
      turns.slice(1).map(({ state }) => state),
      seen.slice(0, turns.length - 1),
    );
  }
});

t.test(
  'drawn turns are drawn before play, and a trunk that is over by then keeps its whole share',
  async t => {
    const servers = await serve(t);
    const short: Tag = { ...LAKE, config: { size: 4, p_frozen: 0.6, success_rate: 1 } };
    const collector = await collectorOf(servers, [short], 16, undefined, 900);
    const plans = [0, 1, 2, 3, 4, 5].map(groupId =>
      planOf({ where: 'drawn', turns: null, roots: 4 }, { groupId, seed: 50 + groupId }),
    );
    const { episodes } = await collector.collect(plans, {
      agent: seeded,
      sampling: SAMPLING,
      samplingSeed: 1,
    });
    let whole = 0;
    for (const { groupId } of plans) {
      const leaves = episodes.filter(episode => episode.groupId === groupId).map(leafOf);
      const shares = leafShares(leaves);
      t.ok(Math.abs(shares.reduce((a, b) => a + b, 0) - 1) < 1e-12);
      leaves.forEach((leaf, i) => {
        t.equal(shares[i], leaf.includes('.') ? 1 / 8 : 1 / 4);
        if (!leaf.includes('.')) whole++;
      });
    }
    t.ok(whole > 0, 'some trunk ended early');
  },
);

t.test('the same luck is the same stream, a fresh one is not', async t => {
  const servers = await serve(t);
  /** Always the same move, so that only luck differs. */
  const stubborn: Agent = {
    respond: async ({ episode }) => ({ text: episode.compose(['Right']), finishReason: 'stop' }),
    release: () => {},
  };
  for (const freshLuck of [true, false]) {
    const collector = await collectorOf(servers, [LAKE], 16, undefined, 900);
    const { episodes } = await collector.collect([planOf({ turns: [2], children: 8, roots: 1, freshLuck })], {
      agent: stubborn,
      sampling: SAMPLING,
      samplingSeed: 5,
    });
    const ends = new Set(episodes.map(({ turns }) => turns.map(({ state }) => state).join()));
    t.equal(ends.size > 1, freshLuck);
  }
});

t.test('without the capability snapshot a branch plays the actions again, and they count', async t => {
  const { servers, collector } = await collecting(t, LAKE);
  const without = new (collector.constructor as typeof import('../collection/collector.ts').Collector)({
    ...(await settingsOf(servers, false)),
  });
  const { episodes, metrics } = await without.collect([planOf({ turns: [2], roots: 1 })], SEEDED);
  t.equal(episodes.length, 2);
  t.match(metrics, { 'branch/replayed_steps': 2, 'branch/env_steps': 2 + 4 + 4 + 2 });
  t.notOk(episodes.some(({ reseeds }) => reseeds));
});

async function settingsOf(servers: Awaited<ReturnType<typeof serve>>, copyable: boolean) {
  const { describeTags, promptTask } = await import('../described-tag.ts');
  const { buildWordTokenizer } = await import('../../models/tokenizer/builder.ts');
  const { compactVocabulary } = await import('../../prompts/compact.ts');
  const { RESPONSE } = await import('../collection/collector.test-data.ts');
  const described = await describeTags(servers, [LAKE]);
  return {
    servers,
    tags: described.map(tag => ({ ...tag, copyable, reseedable: copyable })),
    prompt: 'compact' as const,
    response: RESPONSE,
    tokenizer: buildWordTokenizer(compactVocabulary(described.map(tag => promptTask(tag, RESPONSE)))),
    maxSequenceLength: 900,
    concurrency: 16,
  };
}

t.test(
  'a leaf without a reward is left out and counted; a failure ends the group and closes everything',
  async t => {
    const { servers, collector } = await collecting(t, LAKE);
    const { episodes, lost, metrics } = await collector.collect([planOf({ turns: [2] })], {
      ...SEEDED,
      reward: failingOnce(),
    });
    t.equal(episodes.length, 3);
    t.equal(lost.length, 1);
    t.equal(metrics['branch/lost_leaves'], 1);
    await t.rejects(collector.collect([planOf()], { ...SEEDED, agent: speechless() }), /out of words/);
    await allClosed(servers);
  },
);

t.test(
  'entropy: the probability of a branch is the golden one, and a chain has at most its branches',
  async t => {
    const { cases } = golden<{
      cases: {
        input: { base: number; weight: number };
        output: { entropy_first: number; entropy_now: number; probability: number };
      }[];
    }>('branching_entropy.json');
    for (const { input, output } of cases) {
      const found = branchProbability(output.entropy_now, output.entropy_first, input);
      t.ok(Math.abs(found - output.probability) < 1e-9);
    }
    const { collector } = await collecting(t, LAKE);
    const sure: Partial<TreePlan> = { where: 'entropy', base: 1, weight: 0, branches: 2, roots: 2 };
    const { episodes } = await collector.collect([planOf(sure)], SEEDED);
    t.same(episodes.map(leafOf), ['0.0.0', '0.0.1', '0.1', '1.0.0', '1.0.1', '1.1']);
    const never = await collector.collect([planOf({ ...sure, base: 0 })], SEEDED);
    t.same(never.episodes.map(leafOf), ['0', '1']);
  },
);

t.test('counts of leaves and draws of turns follow the plan', async t => {
  t.equal(leavesPerRoot(TREE), 4);
  t.equal(leavesPerRoot({ ...TREE, where: 'drawn', branches: 2, children: 3 }), 5);
  t.equal(leavesPerRoot({ ...TREE, where: 'drawn', branches: 2, children: 3, depth: 2 }), 21);
  t.equal(leavesPerRoot({ ...TREE, where: 'entropy', branches: 3 }), 4);
  const drawn: TreePlan = { ...TREE, where: 'drawn', turns: null, branches: 2 };
  const counts = new Map<number, number>();
  for (let seed = 0; seed < 3000; seed++) {
    const turns = plannedTurns(drawn, { maxTurns: 5, done: 1, seed });
    t.equal(new Set(turns).size, 2) || t.bailout();
    for (const turn of turns) counts.set(turn, (counts.get(turn) ?? 0) + 1);
  }
  t.same([...counts.keys()].sort(), [2, 3, 4]);
  for (const count of counts.values()) t.ok(Math.abs(count - 2000) < 120, `${count} of 2000`);
  t.same(plannedTurns(drawn, { maxTurns: 1, done: 0, seed: 1 }), [], 'one turn never branches');
});

t.test(
  'branches of a session that was lost continue by their lineage, as if nothing had happened',
  async t => {
    const servers = await serve(t);
    const [server] = servers.servers;
    const options = { sampling: SAMPLING, samplingSeed: 5 };
    const collect = async (agent: Agent) =>
      (await collectorOf(servers, [LAKE], 16, undefined, 900)).collect([planOf()], { ...options, agent });
    const calm = await collect(seeded);
    let turns = 0;
    const rough = await collect({
      ...seeded,
      respond: async turn => {
        turns++;
        // In the middle of the second and of the last generation of branches everything is gone.
        if (turns === 9 || turns === 18) {
          const { sessions } = await server.call('list', { limit: 100 });
          for (const { session_id } of sessions) await server.call('close', { session_id });
        }
        return seeded.respond(turn);
      },
    });
    const essence = ({ server: _server, ...rest }: Episode) => rest;
    t.same(rough.episodes.map(essence), calm.episodes.map(essence));
    t.ok(rough.metrics['branch/recovery_steps'] > 0);
    t.equal(
      rough.metrics['branch/env_steps'],
      calm.metrics['branch/env_steps'],
      'recovery is not the budget',
    );
  },
);

t.test('where the context mode cuts episodes, a shared turn is one sample of the first leaf', async t => {
  const servers = await serve(t);
  const { Collector } = await import('../collection/collector.ts');
  const { samplesOf } = await import('../episode.ts');
  const shared = { full: 1, limited_multi_turn: 2, single_turn: 2 };
  for (const mode of ['full', 'limited_multi_turn', 'single_turn'] as const) {
    const collector = new Collector({
      ...(await settingsOf(servers, true)),
      // Too small for a whole episode.
      maxSequenceLength: mode === 'full' ? 300 : 500,
      context: { mode, window: 2 },
    });
    const { episodes, metrics } = await collector.collect([planOf({ turns: [2], roots: 1 })], {
      agent: seeded,
      sampling: SAMPLING,
      samplingSeed: 1,
    });
    const trained = episodes.map(episode => samplesOf(episode).map(({ lossMask }) => countOnes(lossMask)));
    const sum = trained.flat().reduce((a, b) => a + b, 0);
    t.equal(sum, metrics['branch/sampled_tokens'], mode);
    t.ok(trained[0].every(count => count > 0));
    t.same(
      trained[1].map(count => count > 0),
      trained[1].map((_, sample) => sample >= shared[mode]),
    );
  }
});

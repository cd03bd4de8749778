import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import type { AnyEnvironment } from '../../../env-server/environments/core/environment.ts';
import { frozenLake } from '../../../env-server/environments/frozenlake/frozenlake.ts';
import type { ServerProblem } from '../../client/retry.ts';
import { demonstrate, demonstrationsOf } from '../../data/demonstrations.ts';
import { buildByteTokenizer } from '../../models/tokenizer/builder.ts';
import { loadTokenizer } from '../../models/tokenizer/load.ts';
import type { ChatMessage } from '../../models/tokenizer/tokenizer.ts';
import { compactByteWords } from '../../prompts/compact.ts';
import { trajectoryRecord } from '../../tracking/trajectories.ts';
import { firstPrompts } from '../../training/setup/first-prompts.ts';
import { policyAgent } from '../../training/setup/run-context.ts';
import type { Agent } from '../agents/agent.ts';
import { describeTags, promptTask } from '../described-tag.ts';
import { RewardFault, type RewardHook } from '../rewards/reward-hook.ts';
import { CAPS, serve } from '../server.test-data.ts';
import { planGroups, type Tag } from '../tag.ts';
import {
  alike,
  allClosed,
  collectorOf,
  MIXTURE,
  play,
  RESPONSE,
  random,
  SAMPLING,
  scriptedAgent,
  TAGS,
} from './collector.test-data.ts';
import { Collector } from './collector.ts';
import type { GroupOutcome } from './group.ts';

const QWEN = fileURLToPath(new URL('../../../test/golden/models/qwen2-tiny', import.meta.url));

const SUCCESS_ENDS: { readonly [id: string]: string } = {
  'FrozenLake-v0': 'goal',
  'Sokoban-v0': 'solved',
  'Bandit-v0': 'high_arm',
};

t.test('episodes depend on seeds alone, not on who else plays', async t => {
  const servers = await serve(t);
  const wide = await play(await collectorOf(servers));
  const narrow = await play(await collectorOf(servers, TAGS, 1));
  t.equal(wide.episodes.length, 48);
  t.ok(alike(wide.episodes, narrow.episodes));
  t.same(
    wide.episodes.map(episode => [episode.tag, episode.groupId, episode.member]),
    MIXTURE.flatMap(plan => [0, 1, 2, 3].map(member => [plan.tag, plan.groupId, member])),
  );
  t.equal(new Set(wide.episodes.map(episode => episode.episodeId)).size, 48);
  const other = await (await collectorOf(servers)).collect(MIXTURE, {
    agent: random,
    sampling: SAMPLING,
    samplingSeed: 4,
  });
  t.notOk(alike(other.episodes, wide.episodes));
});

t.test('members of a group start alike, and play under the caps', async t => {
  const servers = await serve(t);
  const { episodes } = await play(await collectorOf(servers));
  for (let i = 0; i < episodes.length; i += 4) {
    const starts = episodes.slice(i, i + 4).map(episode => episode.turns[0].state);
    t.equal(new Set(starts).size, 1);
  }
  const ends = new Set<string | undefined>();
  for (const { environmentId, turns, tokenIds, endedBy, ...episode } of episodes) {
    const { truncation, terminated, following, success } = episode;
    ends.add(`${environmentId} ${endedBy}`);
    if (success) t.equal(endedBy, SUCCESS_ENDS[environmentId]);
    if (truncation?.startsWith('max_')) t.equal(endedBy, truncation);
    t.equal(trajectoryRecord({ environmentId, turns, tokenIds, ...episode, endedBy }).ended_by, endedBy);
    const actions = turns.reduce((sum, turn) => sum + turn.actions.length, 0);
    if (following) t.ok(truncation, 'only what was cut short would continue');
    if (success) t.equal(truncation, undefined);
    if (!terminated) t.equal(truncation, 'max_turns');
    if (truncation === 'max_actions') t.equal(actions, 10);
    t.ok(turns.length <= 5);
    t.ok(turns.every(turn => turn.actions.length <= 2));
    t.ok(tokenIds.length <= 161);
  }
  for (const end of ['goal', 'hole', 'max_turns'])
    t.ok(ends.has(`FrozenLake-v0 ${end}`), `an episode ends by ${end}`);
  // Sessions are closed without the collector's knowledge: it continues at once.
  await allClosed(servers);
});

t.test('demonstrations train on responses only', async t => {
  const servers = await serve(t);
  const collector = await collectorOf(servers);
  const episodes = await demonstrate(
    collector,
    planGroups({ tags: [{ tag: 'Room', groups: 20 }], groupSize: 1, firstSeed: 500 }),
    { policy: 'optimal' },
    1,
  );
  const sequences = episodes.flatMap(episode => demonstrationsOf(episode, 'responses'));
  t.equal(sequences.length, 20);
  t.ok(episodes.filter(episode => episode.success).length >= 18);
  for (const [i, { turns }] of episodes.entries()) {
    const said = turns.reduce((sum, turn) => sum + turn.tokens[1] - turn.tokens[0], 0);
    t.equal(
      sequences[i].lossMask.reduce((sum, bit) => sum + bit, 0),
      said,
    );
    t.ok(turns.every(turn => turn.penalty === 0));
  }
});

t.test('a policy is given what is new, and what it says is kept as sampled', async t => {
  const servers = await serve(t);
  const collector = await collectorOf(servers);
  const { stopTokenIds } = collector.prompt('Lake').tokens!;
  const lengths = new Map<number, number>();
  const released: number[] = [];
  const garbage = Int32Array.from([0, 1, 5, 5, 7]);
  const topOf = (id: number) => ({
    logProb: -1,
    tokenIds: Int32Array.of(id, 3),
    logProbs: Float32Array.of(-1, -2),
  });
  const agent = policyAgent(
    {
      async generate(request) {
        t.same(request.sampling.stopTokenIds, stopTokenIds);
        t.equal(request.sampling.maxNewTokens, 8);
        t.equal(request.topLogProbs, 2);
        lengths.set(
          request.sequenceId,
          (lengths.get(request.sequenceId) ?? 0) + request.append.length + garbage.length,
        );
        return {
          tokenIds: garbage,
          logProbs: new Float32Array(5).fill(-1),
          values: new Float32Array(5).fill(0.5),
          versions: new Int32Array(5).fill(9),
          top: Array.from(garbage, id => topOf(id)),
          finishReason: 'length',
        };
      },
      release: id => released.push(id),
    },
    undefined,
    2,
  );
  const plans = planGroups({ tags: [{ tag: 'Lake', groups: 3 }], groupSize: 2, firstSeed: 1 });
  const { episodes } = await play(collector, agent, plans);
  t.same(
    episodes.map(episode => episode.tokenIds.length),
    [...lengths.values()],
  );
  t.same(released.toSorted(), [...lengths.keys()].toSorted());
  for (const {
    turns,
    tokenIds,
    lossMask,
    logProbs,
    values,
    versions,
    top,
    success,
    terminated,
  } of episodes) {
    t.same(
      [...top!].map(([at, { tokenIds: ids }]) => [at, ids[0]]),
      [...tokenIds].flatMap((id, at) => (lossMask[at] ? [[at, id]] : [])),
      'the likeliest tokens are at the places of the sampled ones',
    );
    t.equal(turns.length, 5, 'a turn without a valid action changes nothing');
    t.ok(turns.every(turn => turn.penalty === -0.1 && turn.actions.length === 0));
    t.equal(new Set(turns.map(turn => turn.state)).size, 1);
    for (const turn of turns) t.same([...tokenIds.slice(...turn.tokens)], [...garbage]);
    t.ok(
      lossMask.every((bit, i) => logProbs[i] === -bit && values![i] === bit / 2 && versions[i] === 9 * bit),
    );
    t.notOk(success || terminated);
  }
});

t.test('chats read like the model’s own template, with the responses as they were said', async t => {
  const servers = await serve(t);
  const tokenizer = await loadTokenizer(QWEN);
  const collector = new Collector({
    servers,
    tags: await describeTags(servers, TAGS),
    prompt: 'chat',
    response: { responseLength: 100, think: true },
    tokenizer,
    maxSequenceLength: 8192,
    concurrency: 16,
  });
  const messages: ChatMessage[][] = [];
  const agent = scriptedAgent(turn => {
    messages[turn.episode.turn - 1] = [...turn.messages()];
    return [
      '<think> hm\n</think> <answer> Up </answer>',
      '<think>no',
      '<think></think><answer>Left || Fly</answer>',
    ][(turn.episode.turn - 1) % 3];
  });
  const plans = planGroups({ tags: [{ tag: 'Room', groups: 1 }], groupSize: 1, firstSeed: 1 });
  const { episodes } = await play(collector, agent, plans);
  const [{ turns, tokenIds }] = episodes;
  t.same(
    turns.map(turn => turn.penalty),
    [0, -0.1, -0.1, 0, -0.1],
  );
  t.match(messages[2].at(-1)?.content, 'no valid action');
  const said = turns.map(turn => turn.rawResponse);
  let i = 0;
  const conversation = messages[4].map(message =>
    message.role === 'assistant' ? { ...message, content: said[i++] } : message,
  );
  const text = tokenizer.chatTemplate!.render(conversation, { addGenerationPrompt: true });
  t.equal(tokenizer.decode(tokenIds), `${text}${said[4]}<|im_end|>`);
});

t.test('plans are drawn as room becomes free', async t => {
  const servers = await serve(t);
  const collector = await collectorOf(servers, TAGS, 8);
  let drawn = 0;
  let most = 0;
  let finished = 0;
  const outcomes: GroupOutcome[] = [];
  async function* source() {
    for (const plan of MIXTURE) {
      drawn++;
      most = Math.max(most, drawn - finished);
      yield plan;
    }
  }
  await collector.play(source(), { agent: random, sampling: SAMPLING, samplingSeed: 3 }, outcome => {
    finished++;
    outcomes.push(outcome);
  });
  t.equal(outcomes.length, 12);
  t.ok(most <= 3, `two groups of four play, one waits; ${most}`);
});

t.test('a signal ends a collection', async t => {
  const servers = await serve(t);
  const collector = await collectorOf(servers);
  const controller = new AbortController();
  let asked = 0;
  const agent: Agent = {
    respond(turn) {
      if (++asked === 20) controller.abort(new Error('stopped by hand'));
      return random.respond(turn);
    },
    release() {},
  };
  const options = { agent, sampling: SAMPLING, samplingSeed: 1, signal: controller.signal };
  await t.rejects(collector.collect(MIXTURE, options), /stopped by hand/);
});

t.test('a reward hook that fails costs its episode, and its group where fewer than two are left', async t => {
  const collector = await collectorOf(await serve(t));
  const [, , , , ...plans] = MIXTURE.slice(0, 8);
  const failures = new Map([
    [plans[0].seed, 1],
    [plans[1].seed, 3],
    [plans[2].seed, 2],
  ]);
  const reward: RewardHook = {
    name: 'judge',
    mode: 'replace',
    async ask({ seed }) {
      const left = failures.get(seed) ?? 0;
      failures.set(seed, left - 1);
      if (left > 0) throw new RewardFault(this, 'has no idea');
      return { reward: 5 };
    },
    async close() {},
  };
  const { episodes, lost, dropped, metrics } = await collector.collect(plans, {
    agent: random,
    reward,
    sampling: SAMPLING,
    samplingSeed: 3,
  });
  const sizes = plans.map(({ seed }) => episodes.filter(episode => episode.seed === seed).length);
  t.same(sizes, [3, 0, 2, 4]);
  t.match([lost.length, dropped.length], [3, 1]);
  t.match(dropped[0].error.message, /rollout\.reward: judge has no idea/);
  t.match(metrics, { 'rollouter/lost_episodes': 3, 'rollouter/dropped_groups': 1, errored_rollouts: 7 });
});

t.test("a fault of the environment costs its group; a fault of the agent's ends the collection", async t => {
  const faulty = {
    ...frozenLake,
    spec: { ...frozenLake.spec, id: 'test/Faulty-v0' },
    step: (state, action, rng) => {
      if (rng.chance(0.05)) throw new Error('broken ice');
      return frozenLake.step(state as never, action, rng);
    },
  } as AnyEnvironment;
  const servers = await serve(t, {}, [faulty]);
  const tag: Tag = { name: 'Faulty', environmentId: 'test/Faulty-v0', config: {}, ...CAPS };
  const collector = await collectorOf(servers, [tag]);
  const plans = planGroups({ tags: [{ tag: 'Faulty', groups: 12 }], groupSize: 2, firstSeed: 1 });
  const { episodes, dropped, metrics } = await play(collector, random, plans);
  t.ok(dropped.length > 0 && episodes.length > 0, `${dropped.length} dropped`);
  t.equal(episodes.length + 2 * dropped.length, 24);
  t.equal(metrics.errored_rollouts, 2 * dropped.length);
  t.equal((dropped[0].error as ServerProblem).code, 'environment_fault');

  const broken: Agent = {
    respond: async () => {
      throw new TypeError('the policy is gone');
    },
    release() {},
  };
  await t.rejects(play(collector, broken, plans), /the policy is gone/);
  await t.rejects(
    collector.collect([{ ...plans[0], tag: 'Sea' }], { agent: random, sampling: SAMPLING, samplingSeed: 1 }),
    /no tag is named Sea; there are: Faulty/,
  );
});

t.test(
  'an episode that does not fit the context costs its group; where none fits, the error says what to set',
  async t => {
    const servers = await serve(t);
    const narrow = await collectorOf(servers, TAGS, 16, undefined, 20);
    const { episodes, dropped, metrics } = await play(narrow);
    t.same(
      new Set(dropped.map(({ plan }) => plan.tag)),
      new Set(['Lake', 'Room']),
      'grids are larger than arms',
    );
    t.equal(episodes.length, 16);
    t.equal(metrics['rollouter/too_long_groups'], 8);
    t.equal(metrics['rollouter/dropped_groups'], 8);
    const rooms = MIXTURE.filter(({ tag }) => tag === 'Room');
    await t.rejects(play(narrow, random, rooms), /prompt of turn 1 has \d+ tokens.*raise policy\.context/);
    await t.rejects(
      firstPrompts(
        { collector: narrow, tags: await describeTags(servers, TAGS) },
        { seed: 1, onFault: (_tag, error) => t.fail(error.message) },
      ),
      /tags\.Lake: the prompt of turn 1 has .*\ntags\.Room: the prompt/,
    );
  },
);

t.test('an error text longer than the context costs nothing, and is counted', async t => {
  const loud = {
    ...frozenLake,
    spec: { ...frozenLake.spec, id: 'test/Loud-v0' },
    describe: config => ({ ...frozenLake.describe(config as never), vocabulary: undefined }),
    observe: (state, format) => `${frozenLake.observe(state as never, format)}${'?'.repeat(200)}`,
  } as AnyEnvironment;
  const servers = await serve(t, {}, [loud]);
  const tag: Tag = { name: 'Loud', environmentId: 'test/Loud-v0', config: {}, ...CAPS };
  const described = await describeTags(servers, [tag]);
  const tokenizer = buildByteTokenizer(compactByteWords(described.map(each => promptTask(each, RESPONSE))));
  const context = { prompt: 'compact', response: RESPONSE, tokenizer, maxSequenceLength: 100 } as const;
  const collector = new Collector({ servers, tags: described, ...context, concurrency: 8 });
  const plans = planGroups({ tags: [{ tag: 'Loud', groups: 4 }], groupSize: 2, firstSeed: 1 });
  const { episodes, dropped, metrics } = await play(collector, random, plans);
  t.same([episodes.length, dropped.length], [8, 0]);
  const turns = episodes.flatMap(episode => episode.turns);
  t.equal(metrics['rollouter/cut_observations'], turns.length);
  t.ok(
    turns.every(({ state }) => state.endsWith('?'.repeat(200))),
    'the record has all of it',
  );
  t.match(tokenizer.decode(episodes[0].tokenIds), /\[\d+ characters cut\]/);
});

t.test('a group that takes too long is given up and counted, and its sessions are closed', async t => {
  const servers = await serve(t);
  const collector = await collectorOf(servers, TAGS, 16, 3000);
  let stuck = (): void => {};
  const agent: Agent = {
    async respond(turn) {
      if (turn.episode.groupId === 2 && turn.episode.turn === 2) {
        await new Promise<void>(resolve => {
          stuck = resolve;
        });
      }
      return random.respond(turn);
    },
    release() {},
  };
  const { episodes, dropped, metrics } = await play(collector, agent);
  stuck();
  t.ok(dropped.some(({ plan }) => plan.groupId === 2));
  t.ok(dropped.every(({ error }) => error.name === 'GroupTimeout'));
  t.equal(episodes.length + 4 * dropped.length, 48);
  t.equal(metrics.errored_rollouts, 4 * dropped.length);
  while ((await servers.servers[0].call('list', {})).sessions.length > 0) await sleep(10);
});

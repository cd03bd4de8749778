import { isDeepStrictEqual } from 'node:util';
import type { Test } from 'tap';
import { Random } from '../../../shared/random.ts';
import type { ServerPool } from '../../client/servers.ts';
import { buildWordTokenizer } from '../../models/tokenizer/builder.ts';
import { compactVocabulary } from '../../prompts/compact.ts';
import { type Agent, type AgentTurn, referenceAgent } from '../agents/agent.ts';
import { describeTags, promptTask } from '../described-tag.ts';
import type { Episode } from '../episode.ts';
import { RewardFault, type RewardHook } from '../rewards/reward-hook.ts';
import { CAPS, serve } from '../server.test-data.ts';
import { type GroupPlan, planGroups, type Tag } from '../tag.ts';
import { Collector } from './collector.ts';

export const RESPONSE = { responseLength: 8, think: true };
export const SAMPLING = { temperature: 1, topK: 0, topP: 1 };
export const TAGS: readonly Tag[] = [
  { name: 'Lake', environmentId: 'FrozenLake-v0', config: {}, ...CAPS },
  { name: 'Room', environmentId: 'Sokoban-v0', config: { preset: 'simple' }, ...CAPS },
  { name: 'Arms', environmentId: 'Bandit-v0', config: {}, ...CAPS, maxTurns: 1, maxActionsPerTurn: 1 },
];
export const MIXTURE = planGroups({
  tags: TAGS.map(({ name }) => ({ tag: name, groups: 4 })),
  groupSize: 4,
  firstSeed: 10_000,
});

export async function collectorOf(
  servers: ServerPool,
  tags = TAGS,
  concurrency = 16,
  groupTimeoutMs?: number,
  maxSequenceLength = 161,
): Promise<Collector> {
  const described = await describeTags(servers, tags);
  const tokenizer = buildWordTokenizer(compactVocabulary(described.map(tag => promptTask(tag, RESPONSE))));
  return new Collector({
    servers,
    tags: described,
    prompt: 'compact',
    response: RESPONSE,
    tokenizer,
    maxSequenceLength,
    concurrency,
    groupTimeoutMs,
  });
}

export const random = referenceAgent({ policy: 'random' });
export const play = (collector: Collector, agent: Agent = random, plans: readonly GroupPlan[] = MIXTURE) =>
  collector.collect(plans, { agent, sampling: SAMPLING, samplingSeed: 3 });

/** The same episodes, wherever and whenever they were played. */
export function alike(some: readonly Episode[], others: readonly Episode[]): boolean {
  const essence = ({ server, ...rest }: Episode) => rest;
  return isDeepStrictEqual(some.map(essence), others.map(essence));
}

/** An agent that moves at random, by the seed of its turn alone. */
export const seeded: Agent = {
  respond: async ({ episode, seed }) => {
    const names = episode.actionNames!.names;
    return {
      text: episode.compose([names[Random.fromSeed(seed).integer(names.length)]]),
      finishReason: 'stop',
    };
  },
  release: () => {},
};

/**
 * Answers by a script: full responses, the prime included.
 * @param script the response to a turn; a promise where it takes time
 */
export function scriptedAgent(script: (turn: AgentTurn) => string | Promise<string>): Agent {
  return {
    async respond(turn) {
      const response = await script(turn);
      const text = response.startsWith(turn.prime) ? response.slice(turn.prime.length) : response;
      return { text, rawResponse: response, finishReason: 'stop' };
    },
    release() {},
  };
}

/** A slippery lake of 8 × 8 without holes, one action a turn. */
export const lakeOf = (maxTurns: number): Tag => ({
  name: 'Lake',
  environmentId: 'FrozenLake-v0',
  config: { size: 8, p_frozen: 1, success_rate: 0.5 },
  ...CAPS,
  maxTurns,
  maxActionsPerTurn: 1,
});

/** Options of a collection that {@link seeded} plays. */
export const SEEDED = { agent: seeded, sampling: SAMPLING, samplingSeed: 5 };

/** A server, and a collector that plays a tag on it. */
export async function collecting(t: Test, tag: Tag) {
  const servers = await serve(t);
  return { servers, collector: await collectorOf(servers, [tag], 16, undefined, 900) };
}

/** Ends when the first server has no open session. */
export async function allClosed({ servers: [server] }: ServerPool): Promise<void> {
  while ((await server.call('list', {})).sessions.length > 0) {
    await new Promise(resolve => setImmediate(resolve));
  }
}

/** A reward of 1, which fails the first time. */
export function failingOnce(): RewardHook {
  let count = 0;
  return {
    name: 'hook',
    mode: 'add',
    ask: async () => {
      if (count++ === 0) throw new RewardFault({ name: 'hook' }, 'gave none');
      return { reward: 1 };
    },
    close: async () => {},
  } as never;
}

/** {@link seeded}, which fails the ninth time. */
export function speechless(): Agent {
  let turns = 0;
  return {
    ...seeded,
    respond: async turn => {
      if (++turns === 9) throw new Error('out of words');
      return seeded.respond(turn);
    },
  };
}

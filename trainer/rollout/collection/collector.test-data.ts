import { isDeepStrictEqual } from 'node:util';
import type { ServerPool } from '../../client/servers.ts';
import { buildWordTokenizer } from '../../models/tokenizer/builder.ts';
import { compactVocabulary } from '../../prompts/compact.ts';
import type { Agent } from '../agents/agent.ts';
import { referenceAgent } from '../agents/reference-agent.ts';
import { describeTags, promptTask } from '../described-tag.ts';
import type { Episode } from '../episode.ts';
import { CAPS } from '../server.test-data.ts';
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

import { Random } from '../../../shared/random.ts';
import type { Agent } from '../agents/agent.ts';

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

import type { Json } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { writtenAction } from '../described-tag.ts';
import type { Agent, EpisodeView } from './agent.ts';

export interface ReferenceAgentSettings {
  /** A reference policy of the environment, e.g. `optimal`; `random` takes actions uniformly. */
  readonly policy: string;
  /** Share of turns that take random actions instead, 0 to 1: what is said in them is nothing to imitate. */
  readonly randomTurns?: number;
  /** Random turns are to be imitated too: play with mistakes. */
  readonly learnRandomTurns?: boolean;
  /**
   * Random actions in a turn: `varied` draws their number from one to as many as a turn may hold, `full` always takes as
   * many. `varied` by default.
   */
  readonly randomCount?: 'varied' | 'full';
}

/** The player that takes actions uniformly. */
export const RANDOM = 'random';

/**
 * Answers as a reference policy would, in well-formed responses with an empty thought: for demonstrations and baselines.
 * Where the policy sees nothing left to do it takes random actions.
 */
export function referenceAgent(settings: ReferenceAgentSettings): Agent {
  const { policy, randomTurns = 0, learnRandomTurns = false, randomCount = 'varied' } = settings;
  return {
    async respond({ seed, episode }) {
      const rng = Random.fromSeed(seed);
      const most = Math.min(episode.maxActionsPerTurn, episode.actionsLeft);
      const atRandom = policy === RANDOM || rng.chance(randomTurns);
      const planned = atRandom ? [] : await episode.reference(policy, most);
      const exploratory = planned.length === 0 && policy !== RANDOM && !learnRandomTurns;
      const actions =
        planned.length > 0
          ? planned.map(action => nameOf(action, episode))
          : await randomActions(episode, randomCount === 'full' ? most : 1 + rng.integer(most), rng);
      const text = episode.compose(actions);
      return { text, finishReason: 'stop', exploratory };
    },
    release() {},
  };
}

/** Uniform over the names of a discrete space or the examples of another; an environment without both is asked. */
async function randomActions(episode: EpisodeView, count: number, rng: Random): Promise<readonly string[]> {
  const names = episode.actionNames?.names ?? episode.exampleActions;
  if (names) return Array.from({ length: count }, () => rng.choice(names));
  const planned = await episode.reference(RANDOM, count);
  return planned.map(action => nameOf(action, episode));
}

function nameOf(action: Json, { actionNames, jsonActions = false }: EpisodeView): string {
  if (jsonActions || typeof action === 'string') return writtenAction(action, jsonActions);
  const name = actionNames?.names[Number(action) - actionNames.start];
  if (name === undefined)
    throw new Error(`the reference policy gave ${JSON.stringify(action)}, which is no action`);
  return name;
}

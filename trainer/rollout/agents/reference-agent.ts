import type { Json } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { writtenAction } from '../described-tag.ts';
import type { Agent, EpisodeView } from './agent.ts';

export interface ReferenceAgentSettings {
  /** A reference policy of the environment, e.g. `optimal`; `random` takes actions uniformly. */
  readonly policy: string;
  /** Share of turns with random actions instead, 0 to 1; these are nothing to imitate. */
  readonly randomTurns?: number;
  /** Imitates random turns too: play with mistakes. */
  readonly learnRandomTurns?: boolean;
  /**
   * Number of random actions in a turn: `varied` draws it from one to the most a turn may hold, `full` always takes the
   * most. `varied` by default.
   */
  readonly randomCount?: 'varied' | 'full';
}

/** The player that takes actions uniformly. */
export const RANDOM = 'random';

/**
 * Answers like a reference policy, in well-formed responses with an empty thought: for demonstrations and baselines.
 * Where the policy has no action to take, it takes random ones. A state's grammar leaves room for one action.
 */
export function referenceAgent(settings: ReferenceAgentSettings): Agent {
  const { policy, randomTurns = 0, learnRandomTurns = false, randomCount = 'varied' } = settings;
  return {
    async respond({ seed, episode, grammar }) {
      const rng = Random.fromSeed(seed);
      const most = grammar ? 1 : Math.min(episode.maxActionsPerTurn, episode.actionsLeft);
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

/**
 * One of the valid actions if they are known. Else uniform over the names of a discrete space or the examples of another; without
 * both, the environment is asked.
 */
async function randomActions(episode: EpisodeView, count: number, rng: Random): Promise<readonly string[]> {
  const { validActions = [], actionNames, exampleActions } = episode;
  if (validActions.length > 0) return [rng.choice(validActions)];
  const names = actionNames?.names ?? exampleActions;
  if (names) return Array.from({ length: count }, () => rng.choice(names));
  const planned = await episode.reference(RANDOM, count);
  return planned.map(action => nameOf(action, episode));
}

/** An action as responses write it. @throws Error for one outside the action space */
export function nameOf(
  action: Json,
  { actionNames, jsonActions = false }: Pick<EpisodeView, 'actionNames' | 'jsonActions'>,
): string {
  if (jsonActions || typeof action === 'string') return writtenAction(action, jsonActions);
  const name = actionNames?.names[Number(action) - actionNames.start];
  if (name === undefined)
    throw new Error(`the reference policy gave ${JSON.stringify(action)}, which is not an action`);
  return name;
}

import type { ExampleMessage } from '../prompts/conversation.ts';
import type { PastTurn, Prompt } from '../prompts/prompt.ts';
import type { ContextSettings } from '../rollout/context.ts';
import type { Episode } from '../rollout/episode.ts';
import { nextView } from '../rollout/play.ts';

interface SaidTurn extends PastTurn {
  readonly exploratory: boolean | undefined;
}

/**
 * An episode as conversations to learn from: one of the whole in full context; otherwise one for each turn with what its
 * prompt shows, of which only that turn's response is to be learned. What was said at random has weight 0.
 */
export function episodeConversations(
  episode: Pick<Episode, 'turns'>,
  prompt: Pick<Prompt, 'wording'>,
  { mode, window }: Pick<ContextSettings, 'mode' | 'window'>,
): ExampleMessage[][] {
  const { wording } = prompt;
  const turns = episode.turns.map(
    (turn, i): SaidTurn => ({
      view: nextView(turn.state, turn.actionsLeft, episode.turns.slice(0, i)),
      response: turn.rawResponse,
      exploratory: turn.exploratory,
    }),
  );
  const system: ExampleMessage[] =
    wording.system() === '' ? [] : [{ role: 'system', content: wording.system() }];
  const user = (content: string): ExampleMessage => ({ role: 'user', content });
  const said = ({ response, exploratory }: SaidTurn, weight = exploratory ? 0 : 1): ExampleMessage => ({
    role: 'assistant',
    content: response,
    ...(weight === 0 ? { weight } : {}),
  });
  const exchange = (turn: SaidTurn, weight?: 0) => [user(wording.turn(turn.view)), said(turn, weight)];
  if (mode === 'full' && window === 0) return [[...system, ...turns.flatMap(turn => exchange(turn))]];
  return turns.map((turn, i) => {
    const past = turns.slice(window === 0 ? 0 : Math.max(0, i + 1 - window), i);
    if (mode === 'single_turn') {
      return [...system, user(wording.folded(turn.view, past)), said(turn)];
    }
    return [...system, ...past.flatMap(earlier => exchange(earlier, 0)), ...exchange(turn)];
  });
}

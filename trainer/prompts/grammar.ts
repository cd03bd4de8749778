import type { GrammarState, TokenGrammar } from '../generation/grammar.ts';

/** The tokens that well-formed responses are made of. */
export interface ResponseTokens {
  /** What follows the prime before the first action, e.g. `</think>` and `<answer>`. */
  readonly lead: readonly number[];
  readonly actions: readonly number[];
  readonly separator: number;
  readonly end: number;
}

/**
 * The grammar of well-formed responses with an empty thought: the lead, one to `maxActions` actions with separators
 * between, the end.
 */
export function responseGrammar(tokens: ResponseTokens, maxActions: number): TokenGrammar {
  const states: GrammarState[] = [];
  for (const token of tokens.lead) states.push({ tokens: [token], next: [states.length + 1] });
  const first = states.length;
  const final = first + 2 * maxActions;
  for (let count = 1; count <= maxActions; count++) {
    const after = first + 2 * count - 1;
    states.push({ tokens: tokens.actions, next: tokens.actions.map(() => after) });
    states.push(
      count < maxActions
        ? { tokens: [tokens.separator, tokens.end], next: [after + 1, final] }
        : { tokens: [tokens.end], next: [final] },
    );
  }
  states.push({ tokens: [], next: [] });
  return { start: 0, states };
}

import type { GrammarState, TokenGrammar } from '../generation/grammar.ts';

/** Most states of a grammar: each has a row of the vocabulary's size. */
const MAX_STATES = 4096;

/** The tokens that well-formed responses are made of. */
export interface ResponseTokens {
  /** Tokens between the prime and the first action, e.g. `</think>` and `<answer>`. */
  readonly lead: readonly number[];
  /** The tokens of each action, at least one. */
  readonly actions: readonly (readonly number[])[];
  readonly separator: number;
  readonly end: number;
}

/**
 * The grammar of well-formed responses with an empty thought: the lead, one to `maxActions` actions with separators between, the
 * end. Actions of several tokens share what they begin with.
 * @returns undefined where it would have more than {@link MAX_STATES} states, or there is no action
 */
export function responseGrammar(tokens: ResponseTokens, maxActions: number): TokenGrammar | undefined {
  const trie = trieOf(tokens.actions);
  if (trie.length < 2) return undefined;
  const { lead, separator, end } = tokens;
  // The states of each action are the trie, from its root.
  const rootOf = (count: number) => lead.length + (count - 1) * trie.length;
  const final = rootOf(maxActions + 1);
  if (final >= MAX_STATES) return undefined;
  const states: GrammarState[] = lead.map((token, i) => ({ tokens: [token], next: [i + 1] }));
  for (let count = 1; count <= maxActions; count++) {
    for (const { children, isAction } of trie) {
      const following = new Map([...children].map(([token, node]) => [token, rootOf(count) + node]));
      if (isAction && count < maxActions) following.set(separator, rootOf(count + 1));
      if (isAction) following.set(end, final);
      states.push({ tokens: [...following.keys()], next: [...following.values()] });
    }
  }
  states.push({ tokens: [], next: [] });
  return { start: 0, states };
}

interface TrieNode {
  /** Node after each token. */
  readonly children: Map<number, number>;
  /** An action may end here. */
  readonly isAction: boolean;
}

/** Sequences by what they begin with. The first node is the root; all ends that nothing follows are one node, the last. */
function trieOf(sequences: readonly (readonly number[])[]): TrieNode[] {
  const root: Branch = new Map();
  const inner: Branch[] = [root];
  const ends = new Set<Branch>();
  for (const sequence of sequences) {
    let at = root;
    for (const token of sequence) {
      const next: Branch = at.get(token) ?? new Map();
      at.set(token, next);
      at = next;
    }
    if (at !== root) ends.add(at);
  }
  for (const branch of inner) inner.push(...[...branch.values()].filter(next => next.size > 0));
  const places = new Map(inner.map((branch, i) => [branch, i]));
  const nodes = inner.map(branch => ({
    children: new Map([...branch].map(([token, next]) => [token, places.get(next) ?? inner.length])),
    isAction: ends.has(branch),
  }));
  return ends.size === 0 ? nodes : [...nodes, { children: new Map(), isAction: true }];
}

/** Possible next tokens, each with its successors. */
interface Branch extends Map<number, Branch> {}

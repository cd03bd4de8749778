import type { ResponseGrammar } from './grammar.ts';

/**
 * Texts of a vocabulary's tokens as a trie, its nodes depth first. Node 0 is the root. Threads share all arrays, so a
 * request carries none of them.
 */
export interface TokenTrie {
  /** UTF-16 code unit that leads to each node. */
  readonly characters: Uint16Array;
  readonly depths: Uint16Array;
  readonly parents: Int32Array;
  /** First node after each node's descendants. */
  readonly ends: Int32Array;
  /** Tokens of node n are `tokens[firstTokens[n]]` to `tokens[firstTokens[n + 1] − 1]`. */
  readonly firstTokens: Int32Array;
  readonly tokens: Int32Array;
  /** Node of each token id; 0 for those without text. */
  readonly nodes: Int32Array;
}

/**
 * Possible texts of a response: a deterministic automaton over characters, and the tokens that spell them. The allowed
 * tokens of a state are found on demand: a table would take states × vocabulary.
 */
export interface TextGrammar {
  readonly trie: TokenTrie;
  /** Class of each UTF-16 code unit. */
  readonly classes: Uint16Array;
  readonly classCount: number;
  /** State after a character: state · classCount + class; −1 where there is none. Responses begin in state 0. */
  readonly next: Int32Array;
  /** 1 where tokens can reach an end from the state. */
  readonly live: Uint8Array;
  /** 1 where the text may end. */
  readonly accepting: Uint8Array;
  /** 1 where it must. */
  readonly final: Uint8Array;
  /** Tokens that end the response in an accepting state that is not final. */
  readonly stopTokenIds: readonly number[];
}

/**
 * Visits the nodes of tokens that may follow in a state, with the state each leads to, until `visit` returns true.
 * @returns number of visited nodes
 */
export function visitTokens(
  { trie, classes, classCount, next, live }: TextGrammar,
  from: number,
  visit: (node: number, state: number) => boolean,
): number {
  const { characters, depths, ends, firstTokens } = trie;
  const states = [from];
  let looked = 0;
  for (let node = 1; node < characters.length; looked++) {
    const depth = depths[node];
    const state = next[states[depth - 1] * classCount + classes[characters[node]]];
    if (state === -1) {
      node = ends[node];
      continue;
    }
    states[depth] = state;
    if (live[state] === 1 && firstTokens[node] < firstTokens[node + 1] && visit(node, state)) break;
    node++;
  }
  return looked;
}

/**
 * Follows a {@link TextGrammar} for one response. It keeps the tokens of one state: a byte for each of the vocabulary.
 */
export class TextGrammarMatcher implements ResponseGrammar {
  readonly start = 0;
  readonly #grammar: TextGrammar;
  /** State after a stop token. */
  readonly #end: number;
  readonly #allowed: Uint8Array;
  #allowedIn = -1;

  constructor(grammar: TextGrammar, vocabularySize: number) {
    this.#grammar = grammar;
    this.#end = grammar.live.length;
    this.#allowed = new Uint8Array(vocabularySize);
  }

  /** @returns an array that the next call overwrites */
  allowedIn(state: number): Uint8Array {
    const allowed = this.#allowed;
    if (state === this.#allowedIn) return allowed;
    const { trie, accepting, stopTokenIds } = this.#grammar;
    const { firstTokens, tokens } = trie;
    allowed.fill(0);
    visitTokens(this.#grammar, state, node => {
      for (let i = firstTokens[node]; i < firstTokens[node + 1]; i++) allowed[tokens[i]] = 1;
      return false;
    });
    if (accepting[state] === 1) for (const id of stopTokenIds) allowed[id] = 1;
    this.#allowedIn = state;
    return allowed;
  }

  stateAfter(state: number, token: number): number {
    const { trie, classes, classCount, next, accepting, stopTokenIds } = this.#grammar;
    if (accepting[state] === 1 && stopTokenIds.includes(token)) return this.#end;
    const path: number[] = [];
    for (let node = trie.nodes[token]; node > 0; node = trie.parents[node]) path.push(trie.characters[node]);
    return path.reduceRight((at, character) => next[at * classCount + classes[character]], state);
  }

  isFinal(state: number): boolean {
    return state === this.#end || this.#grammar.final[state] === 1;
  }
}

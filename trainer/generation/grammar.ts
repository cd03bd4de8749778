/**
 * A deterministic automaton over token ids, as plain data. A response starts in `start`; the token `tokens[i]` of a
 * state leads to the state `next[i]`. A state without tokens ends the response.
 */
export interface TokenGrammar {
  readonly start: number;
  readonly states: readonly GrammarState[];
}

interface GrammarState {
  readonly tokens: readonly number[];
  readonly next: readonly number[];
}

/** Named grammars of a policy. */
export type Grammars = { readonly [name: string]: TokenGrammar };

/** Automaton for the tokens of a response. */
export interface ResponseGrammar {
  readonly start: number;
  /** 1 where a token is allowed in the state; read it before the next call. */
  allowedIn(state: number): Uint8Array;
  /** State after a token that is allowed. */
  stateAfter(state: number, token: number): number;
  /** True if the response is over. */
  isFinal(state: number): boolean;
}

/** A grammar with a table for each state, for a vocabulary. */
export interface CompiledGrammar extends ResponseGrammar {
  readonly stateCount: number;
  /** Allowed tokens of each state. */
  readonly tokens: readonly (readonly number[])[];
  /** 1 where a token is allowed: state · vocabulary + token. */
  readonly allowed: Uint8Array;
  /** State after a token, −1 where it is not allowed. */
  readonly next: Int32Array;
}

/** @throws RangeError naming the wrong state and token */
export function compileGrammar(name: string, grammar: TokenGrammar, vocabularySize: number): CompiledGrammar {
  const sparse = sparseGrammar(name, grammar, vocabularySize);
  const count = grammar.states.length;
  const allowed = new Uint8Array(count * vocabularySize);
  const next = new Int32Array(count * vocabularySize).fill(-1);
  const rows = grammar.states.map((state, s) => {
    state.tokens.forEach((token, i) => {
      allowed[s * vocabularySize + token] = 1;
      next[s * vocabularySize + token] = state.next[i];
    });
    return allowed.subarray(s * vocabularySize, (s + 1) * vocabularySize);
  });
  return {
    start: grammar.start,
    stateCount: count,
    tokens: grammar.states.map(({ tokens }) => tokens),
    allowed,
    next,
    allowedIn: state => rows[state],
    stateAfter: (state, token) => next[state * vocabularySize + token],
    isFinal: state => isFinal(sparse, state),
  };
}

/**
 * State in which each trained token was sampled, for a loss under the same mask: responses are the runs of ones in the
 * loss mask.
 * @param free value for unmasked tokens
 * @throws RangeError when the grammar does not allow a token
 */
export function grammarStates(
  grammar: CompiledGrammar,
  tokenIds: ArrayLike<number>,
  lossMask: ArrayLike<number>,
  free: number,
): Int32Array {
  const vocabularySize = grammar.next.length / grammar.stateCount;
  const states = new Int32Array(tokenIds.length).fill(free);
  let state = grammar.start;
  for (let t = 0; t < tokenIds.length; t++) {
    if (!lossMask[t]) {
      state = grammar.start;
      continue;
    }
    states[t] = state;
    const next = grammar.next[state * vocabularySize + tokenIds[t]];
    if (next === -1) throw new RangeError(`token ${tokenIds[t]} at ${t} is not allowed in state ${state}`);
    state = next;
  }
  return states;
}

/**
 * A {@link TokenGrammar} in memory that threads share, so that a request carries none of it: state s has the edges
 * `offsets[s]` to `offsets[s + 1] − 1`.
 */
export interface SparseGrammar {
  readonly start: number;
  readonly offsets: Int32Array;
  readonly tokens: Int32Array;
  readonly next: Int32Array;
}

/** @throws RangeError naming the state and token that do not fit */
export function sparseGrammar(name: string, grammar: TokenGrammar, vocabularySize: number): SparseGrammar {
  const { start, states } = grammar;
  const count = states.length;
  const fail = (what: string): never => {
    throw new RangeError(`grammar ${name}: ${what}`);
  };
  const isState = (state: number) => Number.isInteger(state) && state >= 0 && state < count;
  if (!isState(start)) fail(`start ${start} is not one of its ${count} states`);
  const edges = states.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const [offsets, tokens, next] = [count + 1, edges, edges].map(
    length => new Int32Array(new SharedArrayBuffer(4 * length)),
  );
  let at = 0;
  for (const [s, state] of states.entries()) {
    offsets[s] = at;
    if (state.tokens.length !== state.next.length) {
      fail(`state ${s} has ${state.tokens.length} tokens and ${state.next.length} next states`);
    }
    for (const [i, token] of state.tokens.entries()) {
      if (!Number.isInteger(token) || token < 0 || token >= vocabularySize) {
        fail(`state ${s} allows token ${token}; the vocabulary has ${vocabularySize}`);
      }
      if (!isState(state.next[i])) fail(`state ${s} leads to ${state.next[i]}, of ${count} states`);
      tokens[at] = token;
      next[at++] = state.next[i];
    }
  }
  offsets[count] = at;
  return { start, offsets, tokens, next };
}

/** The grammar as it travels to engines elsewhere. */
export function tokenGrammar({ start, offsets, tokens, next }: SparseGrammar): TokenGrammar {
  const states = Array.from(offsets.subarray(1), (end, s) => ({
    tokens: [...tokens.subarray(offsets[s], end)],
    next: [...next.subarray(offsets[s], end)],
  }));
  return { start, states };
}

/** Memory that a grammar takes. */
export function grammarBytes({ offsets, tokens, next }: SparseGrammar): number {
  return offsets.byteLength + tokens.byteLength + next.byteLength;
}

/** State after a token, −1 where it is not allowed. */
function stateAfter({ offsets, tokens, next }: SparseGrammar, state: number, token: number): number {
  const edge = tokens.subarray(offsets[state], offsets[state + 1]).indexOf(token);
  return edge === -1 ? -1 : next[offsets[state] + edge];
}

function isFinal({ offsets }: SparseGrammar, state: number): boolean {
  return offsets[state] === offsets[state + 1];
}

/** A {@link SparseGrammar} that one response follows. It keeps the tokens of one state: a byte for each of the vocabulary. */
export class SparseGrammarMatcher implements ResponseGrammar {
  readonly start: number;
  readonly #grammar: SparseGrammar;
  readonly #allowed: Uint8Array;
  #allowedIn = -1;

  constructor(grammar: SparseGrammar, vocabularySize: number) {
    this.start = grammar.start;
    this.#grammar = grammar;
    this.#allowed = new Uint8Array(vocabularySize);
  }

  /** @returns an array that the next call overwrites */
  allowedIn(state: number): Uint8Array {
    if (state === this.#allowedIn) return this.#allowed;
    const { offsets, tokens } = this.#grammar;
    this.#allowed.fill(0);
    for (let edge = offsets[state]; edge < offsets[state + 1]; edge++) this.#allowed[tokens[edge]] = 1;
    this.#allowedIn = state;
    return this.#allowed;
  }

  stateAfter(state: number, token: number): number {
    return stateAfter(this.#grammar, state, token);
  }

  isFinal(state: number): boolean {
    return isFinal(this.#grammar, state);
  }
}

/** Sets of allowed tokens by state, so that equal places of a batch share one. */
const tokenSets = new WeakMap<SparseGrammar, Map<number, Int32Array>>();

/**
 * The tokens that could have been sampled in place of each of a response, for scores and a loss under the same mask.
 * @throws RangeError when the grammar does not allow a token
 */
export function allowedTokens(grammar: SparseGrammar, response: Int32Array): Int32Array[] {
  const sets = tokenSets.get(grammar) ?? new Map<number, Int32Array>();
  tokenSets.set(grammar, sets);
  let state = grammar.start;
  return Array.from(response, (token, t) => {
    const { offsets, tokens } = grammar;
    const set = sets.get(state) ?? tokens.slice(offsets[state], offsets[state + 1]);
    sets.set(state, set);
    const next = stateAfter(grammar, state, token);
    if (next === -1) throw new RangeError(`token ${token} at ${t} is not allowed in state ${state}`);
    state = next;
    return set;
  });
}

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

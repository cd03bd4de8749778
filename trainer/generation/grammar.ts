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
  const count = grammar.states.length;
  const fail = (what: string): never => {
    throw new RangeError(`grammar ${name}: ${what}`);
  };
  const isState = (state: number) => Number.isInteger(state) && state >= 0 && state < count;
  if (!isState(grammar.start)) fail(`start ${grammar.start} is not one of its ${count} states`);
  const allowed = new Uint8Array(count * vocabularySize);
  const next = new Int32Array(count * vocabularySize).fill(-1);
  const final = new Uint8Array(count);
  grammar.states.forEach((state, s) => {
    if (state.tokens.length !== state.next.length) {
      fail(`state ${s} has ${state.tokens.length} tokens and ${state.next.length} next states`);
    }
    if (state.tokens.length === 0) final[s] = 1;
    state.tokens.forEach((token, i) => {
      if (!Number.isInteger(token) || token < 0 || token >= vocabularySize) {
        fail(`state ${s} allows token ${token}; the vocabulary has ${vocabularySize}`);
      }
      if (!isState(state.next[i])) fail(`state ${s} leads to ${state.next[i]}, of ${count} states`);
      allowed[s * vocabularySize + token] = 1;
      next[s * vocabularySize + token] = state.next[i];
    });
  });
  const rows = grammar.states.map((_, s) => allowed.subarray(s * vocabularySize, (s + 1) * vocabularySize));
  return {
    start: grammar.start,
    stateCount: count,
    tokens: grammar.states.map(({ tokens }) => tokens),
    allowed,
    next,
    allowedIn: state => rows[state],
    stateAfter: (state, token) => next[state * vocabularySize + token],
    isFinal: state => final[state] === 1,
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

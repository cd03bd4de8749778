import type { JsonObject } from '../../shared/json.ts';
import { grammarBytes, type SparseGrammar, sparseGrammar, type TokenGrammar } from '../generation/grammar.ts';
import { jsonResponseGrammar, type ResponseFrame } from '../generation/json/response-grammar.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import type { PromptTask } from './prompt.ts';

/** Most states of a grammar that stays, and most states times tokens: each state has a row of the vocabulary's size. */
const MAX_STATES = 4096;
const MAX_ENTRIES = 2 ** 24;
/** Most tokens of one state's actions together. */
const MAX_ACTION_TOKENS = 2 ** 17;
/** Memory of the grammars of states that are kept, of a prompt, and actions with tokens that are kept. */
const KEPT_BYTES = 2 ** 25;
const KEPT_ACTIONS = 2 ** 14;

/** Tokens of well-formed responses. */
export interface ResponseTokens {
  /** Tokens between the prime and the first action, e.g. `</think>` and `<answer>`. */
  readonly lead: readonly number[];
  /** The tokens of each action, at least one. */
  readonly actions: readonly (readonly number[])[];
  readonly separator: readonly number[];
  readonly end: readonly number[];
}

/**
 * The grammar of well-formed responses with an empty thought: the lead, one to `maxActions` actions with separators between, the
 * end. Actions of several tokens share what they begin with.
 * @returns undefined where it would have too many states, there is no action, or one continues as the separator or the end begins
 */
export function responseGrammar(
  { lead, actions, separator, end }: ResponseTokens,
  maxActions: number,
  maxStates: number,
): TokenGrammar | undefined {
  const trie = trieOf(actions);
  const size = lead.length + maxActions * (trie.length + separator.length + end.length) + 1;
  if (trie.length < 2 || size > maxStates) return undefined;
  const states: { readonly tokens: number[]; readonly next: number[] }[] = [];
  const state = (): number => states.push({ tokens: [], next: [] }) - 1;
  const edge = (from: number, token: number, to: number): void => {
    states[from].tokens.push(token);
    states[from].next.push(to);
  };
  /** Adds a path of tokens between two states, along existing ones. */
  const path = (from: number, tokens: readonly number[], to: number): void => {
    let at = from;
    for (const token of tokens.slice(0, -1)) {
      const known = states[at].next[states[at].tokens.indexOf(token)];
      const next = known ?? state();
      if (known === undefined) edge(at, token, next);
      at = next;
    }
    edge(at, tokens[tokens.length - 1], to);
  };
  const start = state();
  const final = state();
  let root = lead.length > 0 ? state() : start;
  if (lead.length > 0) path(start, lead, root);
  for (let count = 1; count <= maxActions; count++) {
    const after = state();
    const nextRoot = count < maxActions ? state() : null;
    path(after, end, final);
    if (nextRoot !== null) path(after, separator, nextRoot);
    // The trie's first node is its root, the last the common end of actions that nothing continues.
    const places = trie.map((_, i) => (i === 0 ? root : i === trie.length - 1 ? after : state()));
    for (const [i, { children, isAction }] of trie.slice(0, -1).entries()) {
      for (const [token, node] of children) edge(places[i], token, places[node]);
      if (!isAction) continue;
      if (states[after].tokens.some(token => children.has(token))) return undefined;
      for (const [k, token] of states[after].tokens.entries()) edge(places[i], token, states[after].next[k]);
    }
    root = nextRoot ?? root;
  }
  return { start, states };
}

/**
 * The grammar of well-formed responses with one JSON action.
 * @throws Error saying why the schema has none
 */
export function schemaGrammar(
  schema: JsonObject,
  { maxActionsPerTurn }: PromptTask,
  tokenizer: Tokenizer,
  frame: ResponseFrame,
): TokenGrammar {
  if (maxActionsPerTurn > 1) {
    throw new Error('it holds JSON actions one a turn: set max_actions_per_turn of the tag to 1');
  }
  try {
    return jsonResponseGrammar(schema, tokenizer, frame, mostStates(tokenizer));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new Error(`the schema of its actions makes none: ${error.message}`);
  }
}

/** Most states of a grammar for all states of an environment. */
export function mostStates({ vocabularySize }: Tokenizer): number {
  return Math.min(MAX_STATES, MAX_ENTRIES / vocabularySize);
}

/** Grammars of responses that hold one of the actions of a state; states with the same actions share one while it is kept. */
export class StateGrammars {
  readonly #task: PromptTask;
  readonly #tokenizer: Tokenizer;
  readonly #around: Omit<ResponseTokens, 'actions'>;
  readonly #encode: (action: string) => readonly number[] | undefined;
  readonly #encoded = new Map<string, readonly number[] | undefined>();
  /** By the actions in their order, those used last at the end. */
  readonly #known = new Map<string, SparseGrammar>();
  readonly #keptBytes: number;
  #bytes = 0;

  /**
   * @param encode tokens of an action; undefined for one that a response cannot hold
   * @param keptBytes memory of the grammars that are kept, about
   */
  constructor(
    task: PromptTask,
    tokenizer: Tokenizer,
    around: Omit<ResponseTokens, 'actions'>,
    encode: (action: string) => readonly number[] | undefined,
    keptBytes = KEPT_BYTES,
  ) {
    this.#keptBytes = keptBytes;
    this.#task = task;
    this.#tokenizer = tokenizer;
    this.#around = around;
    this.#encode = encode;
  }

  /** @throws Error saying why there is none */
  of(actions: readonly string[]): SparseGrammar {
    const ordered = [...new Set(actions)].sort();
    const key = JSON.stringify(ordered);
    const known = this.#known.get(key);
    const grammar = known ?? this.#made(ordered);
    if (known) this.#known.delete(key);
    else this.#bytes += bytesOf(key, grammar);
    this.#known.set(key, grammar);
    for (const [oldest, dropped] of this.#known) {
      if (this.#bytes <= this.#keptBytes) break;
      this.#known.delete(oldest);
      this.#bytes -= bytesOf(oldest, dropped);
    }
    return grammar;
  }

  /** The response that holds an action, as these grammars spell it; undefined for an action that no response can hold. */
  response(action: string): readonly number[] | undefined {
    const { lead, end } = this.#around;
    const ids = this.#tokensOf(action);
    return ids && [...lead, ...ids, ...end];
  }

  #made(actions: readonly string[]): SparseGrammar {
    const { lead, end } = this.#around;
    const { environmentId } = this.#task.description;
    const encoded = actions.map(action => this.#tokensOf(action)).filter(ids => ids !== undefined);
    checkResponseLength(this.#task, encoded, lead.length + end.length, this.#tokenizer);
    const tokens = encoded.reduce((sum, ids) => sum + ids.length, 0);
    if (tokens > MAX_ACTION_TOKENS) {
      throw new Error(
        `rollout.constrained: ${environmentId} lists ${actions.length} valid actions of ${tokens} tokens; the limit is ${MAX_ACTION_TOKENS}`,
      );
    }
    const grammar = responseGrammar({ ...this.#around, actions: encoded }, 1, Number.POSITIVE_INFINITY);
    if (grammar) return sparseGrammar(environmentId, grammar, this.#tokenizer.vocabularySize);
    const [first = 'none'] = actions;
    throw new Error(
      `rollout.constrained: ${environmentId} lists ${actions.length} valid actions (${first.slice(0, 40)}, …) that no ` +
        'grammar can be made of: each must be readable between <answer> and </answer>, and none may continue another with <',
    );
  }

  #tokensOf(action: string): readonly number[] | undefined {
    if (this.#encoded.has(action)) return this.#encoded.get(action);
    if (this.#encoded.size >= KEPT_ACTIONS) this.#encoded.clear();
    const ids = this.#encode(action);
    this.#encoded.set(action, ids);
    return ids;
  }
}

/** UTF-16 code units have two bytes. */
const bytesOf = (key: string, grammar: SparseGrammar): number => 2 * key.length + grammarBytes(grammar);

/** @throws Error naming the longest action if it does not fit in a response */
export function checkResponseLength(
  { description, responseLength }: PromptTask,
  actions: readonly (readonly number[])[],
  around: number,
  tokenizer: Tokenizer,
): void {
  const longest = actions.reduce((most, action) => (action.length > most.length ? action : most), []);
  const needed = longest.length + around;
  if (needed <= responseLength) return;
  const spelled = description.jsonActions ? ' or more: each digit of a JSON action is a token' : '';
  throw new Error(
    `rollout.response_length ${responseLength} has no room for ${JSON.stringify(tokenizer.decode(longest))} of ` +
      `${description.environmentId}, which takes ${needed} tokens with its tags: raise it to ${needed}${spelled}`,
  );
}

interface TrieNode {
  /** Node after each token. */
  readonly children: Map<number, number>;
  /** An action may end here. */
  readonly isAction: boolean;
}

/** Trie of sequences. The first node is the root; all ends that nothing follows share the last node. */
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

import type { JsonObject } from '../../../shared/json.ts';
import { inSlices, type Sliced } from '../../../shared/slices.ts';
import type { GrammarState, TokenGrammar } from '../../generation/grammar.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { ApiError, badRequest } from '../openai/errors.ts';
import { LARGEST_GRAMMAR } from '../openai/options.ts';
import { CharacterAutomaton } from './character-automaton.ts';
import { addSchema } from './json-schema.ts';

/** Grammars that are kept. */
const MOST_KEPT = 32;
/** Schemas that wait to be compiled. */
const MOST_WAITING = 32;
const RETRY_AFTER_S = 1;
/** Steps from state to state that a schema may take: one for each state of the automaton that a character is tried in. */
const MOST_STEPS = 2 ** 22;
/** Steps, or tokens read, between two places where others may have their turn. */
const STEPS_AT_ONCE = 256;
/** No schema of use has fewer states: vocabularies with room for less are refused before their tokens are read. */
const LEAST_STATES = 8;

interface TrieNode {
  readonly children: Map<number, TrieNode>;
  /** Tokens whose text ends here. */
  readonly tokens: number[];
}

interface TokenState {
  readonly accepting: boolean;
  /** State after each token. */
  readonly next: Map<number, number>;
}

/**
 * Automata over token ids of the JSON texts that fit a schema. They are compiled one at a time and in slices, so that the
 * server goes on meanwhile.
 */
export class JsonGrammars {
  readonly #tokenizer: Tokenizer;
  readonly #vocabularySize: number;
  readonly #stopTokenIds: readonly number[];
  readonly #mostSteps: number;
  /** Grammars, and why schemas have none, by the schema. */
  readonly #known = new Map<string, Promise<TokenGrammar | RangeError>>();
  #turn: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #trie: TrieNode | null = null;

  /** @param mostSteps steps from state to state that a schema may take */
  constructor(
    tokenizer: Tokenizer,
    vocabularySize: number,
    stopTokenIds: readonly number[],
    mostSteps = MOST_STEPS,
  ) {
    this.#mostSteps = mostSteps;
    this.#tokenizer = tokenizer;
    this.#vocabularySize = vocabularySize;
    this.#stopTokenIds = stopTokenIds;
  }

  /** @throws ApiError 400 for a schema that an automaton of this vocabulary cannot hold, 429 when too many others wait */
  async of(schema: JsonObject): Promise<TokenGrammar> {
    const key = JSON.stringify(schema);
    let known = this.#known.get(key);
    if (known === undefined) {
      if (this.#waiting >= MOST_WAITING) {
        throw new ApiError(429, `${MOST_WAITING} schemas are being compiled; try again later`, {
          code: 'rate_limit_exceeded',
          retryAfterS: RETRY_AFTER_S,
        });
      }
      known = this.#compiled(schema);
      if (this.#known.size >= MOST_KEPT) this.#known.delete(this.#known.keys().next().value!);
      this.#known.set(key, known);
    }
    const result = await known;
    if (!(result instanceof RangeError)) return result;
    throw badRequest(`this schema cannot constrain responses: ${result.message}`, 'response_format');
  }

  #compiled(schema: JsonObject): Promise<TokenGrammar | RangeError> {
    this.#waiting++;
    const result = this.#turn
      .then(() => inSlices(this.#compile(schema)))
      .catch(error => {
        if (error instanceof RangeError) return error;
        throw error;
      })
      .finally(() => this.#waiting--);
    this.#turn = result.catch(() => {});
    return result;
  }

  *#compile(schema: JsonObject): Sliced<TokenGrammar> {
    const most = Math.floor(LARGEST_GRAMMAR / this.#vocabularySize) - 1;
    if (most < LEAST_STATES) {
      throw new RangeError(`a vocabulary of ${this.#vocabularySize} tokens is too large for schemas`);
    }
    const automaton = new CharacterAutomaton();
    const begin = automaton.state();
    const end = addSchema(automaton, begin, schema);
    this.#trie ??= yield* tokenTrie(this.#tokenizer, this.#vocabularySize);
    const numbers = new Map<string, number>();
    const sets: number[][] = [];
    const numberOf = (set: number[]): number => {
      const key = set.join();
      const number = numbers.get(key) ?? sets.length;
      if (number < sets.length) return number;
      if (number >= most) {
        throw new RangeError(
          `it takes more than ${most} states with a vocabulary of ${this.#vocabularySize}`,
        );
      }
      numbers.set(key, number);
      sets.push(set);
      return number;
    };
    numberOf(automaton.closure([begin]));
    const states: TokenState[] = [];
    const budget = { steps: this.#mostSteps };
    for (let s = 0; s < sets.length; s++) {
      const next = new Map<number, number>();
      yield* walk(automaton, sets[s], this.#trie, budget, (token, set) => next.set(token, numberOf(set)));
      states.push({ accepting: sets[s].includes(end), next });
    }
    return yield* pruned(states, this.#stopTokenIds);
  }
}

/**
 * Every token that is allowed in a set of states, with the set it leads to.
 * @param budget steps that are left
 */
function* walk(
  automaton: CharacterAutomaton,
  set: readonly number[],
  trie: TrieNode,
  budget: { steps: number },
  found: (token: number, set: number[]) => void,
): Sliced<void> {
  const open = [{ node: trie, set }];
  let yieldAt = budget.steps - STEPS_AT_ONCE;
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    for (const [character, node] of at.node.children) {
      const next = automaton.next(at.set, character);
      budget.steps -= at.set.length + next.length;
      if (budget.steps < 0) throw new RangeError('it takes too long to compile');
      if (budget.steps < yieldAt) {
        yieldAt = budget.steps - STEPS_AT_ONCE;
        yield;
      }
      if (next.length === 0) continue;
      for (const token of node.tokens) found(token, next);
      open.push({ node, set: next });
    }
  }
}

/** Without what leads to no end; ends with a stop token where the text may go on. */
function* pruned(states: readonly TokenState[], stopTokenIds: readonly number[]): Sliced<TokenGrammar> {
  const before: number[][] = states.map(() => []);
  for (const [s, { next }] of states.entries()) {
    for (const to of new Set(next.values())) before[to].push(s);
    yield;
  }
  const leading = new Set(states.flatMap(({ accepting }, s) => (accepting ? [s] : [])));
  for (const s of leading) for (const from of before[s]) leading.add(from);
  if (!leading.has(0)) {
    throw new RangeError('no text that fits it can be written with the tokens of this model');
  }
  const last = states.length;
  const written: GrammarState[] = [];
  for (const { accepting, next } of states) {
    const kept = [...next].filter(([, to]) => leading.has(to));
    const ended = accepting && kept.length > 0 ? stopTokenIds.map(id => [id, last] as const) : [];
    const all = [...kept, ...ended];
    written.push({ tokens: all.map(([token]) => token), next: all.map(([, to]) => to) });
    yield;
  }
  return { start: 0, states: [...written, { tokens: [], next: [] }] };
}

/** The texts of all tokens that are whole characters; special tokens have none. */
function* tokenTrie(tokenizer: Tokenizer, vocabularySize: number): Sliced<TrieNode> {
  const root: TrieNode = { children: new Map(), tokens: [] };
  // Some decoders take a space from the first token: another stands in front.
  const [front] = tokenizer.encode('"');
  const before = front === undefined ? '' : tokenizer.decode([front], { skipSpecial: true });
  for (let id = 0; id < Math.min(vocabularySize, tokenizer.vocabularySize); id++) {
    if (id % STEPS_AT_ONCE === 0) yield;
    const whole = tokenizer.decode(front === undefined ? [id] : [front, id], { skipSpecial: true });
    const text = whole.slice(before.length);
    if (text === '' || text.includes('\uFFFD')) continue;
    let node = root;
    for (let i = 0; i < text.length; i++) {
      const character = text.charCodeAt(i);
      let child = node.children.get(character);
      if (child === undefined) {
        child = { children: new Map(), tokens: [] };
        node.children.set(character, child);
      }
      node = child;
    }
    node.tokens.push(id);
  }
  return root;
}

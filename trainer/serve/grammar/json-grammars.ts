import type { JsonObject } from '../../../shared/json.ts';
import type { TokenGrammar } from '../../generation/grammar.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { badRequest } from '../openai/errors.ts';
import { LARGEST_GRAMMAR } from '../openai/options.ts';
import { CharacterAutomaton } from './character-automaton.ts';
import { addSchema } from './json-schema.ts';

/** Grammars that are kept. */
const MOST_KEPT = 32;
/** Steps from character to character that a schema may take; they are what holds up the server. */
const MOST_STEPS = 2 ** 20;
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

/** Automata over token ids of the JSON texts that fit a schema. */
export class JsonGrammars {
  readonly #tokenizer: Tokenizer;
  readonly #vocabularySize: number;
  readonly #stopTokenIds: readonly number[];
  readonly #mostSteps: number;
  /** Grammars, and why schemas have none, by the schema. */
  readonly #known = new Map<string, TokenGrammar | RangeError>();
  #trie: TrieNode | null = null;

  /** @param mostSteps steps from character to character that a schema may take */
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

  /** @throws ApiError 400 for a schema that an automaton of this vocabulary cannot hold */
  of(schema: JsonObject): TokenGrammar {
    const key = JSON.stringify(schema);
    let result = this.#known.get(key);
    if (result === undefined) {
      result = this.#compiled(schema);
      if (this.#known.size >= MOST_KEPT) this.#known.delete(this.#known.keys().next().value!);
      this.#known.set(key, result);
    }
    if (!(result instanceof RangeError)) return result;
    throw badRequest(`this schema cannot constrain responses: ${result.message}`, 'response_format');
  }

  #compiled(schema: JsonObject): TokenGrammar | RangeError {
    try {
      return this.#compile(schema);
    } catch (error) {
      if (error instanceof RangeError) return error;
      throw error;
    }
  }

  #compile(schema: JsonObject): TokenGrammar {
    const most = Math.floor(LARGEST_GRAMMAR / this.#vocabularySize) - 1;
    if (most < LEAST_STATES) {
      throw new RangeError(`a vocabulary of ${this.#vocabularySize} tokens is too large for schemas`);
    }
    const automaton = new CharacterAutomaton();
    const begin = automaton.state();
    const end = addSchema(automaton, begin, schema);
    this.#trie ??= tokenTrie(this.#tokenizer, this.#vocabularySize);
    const trie = this.#trie;
    let steps = 0;
    const count = () => {
      if (++steps > this.#mostSteps) throw new RangeError('it takes too long to compile');
    };
    const numbers = new Map<string, number>();
    const sets: number[][] = [];
    const numberOf = (set: number[]): number => {
      const key = set.join();
      const number = numbers.get(key) ?? sets.length;
      if (number < sets.length) return number;
      if (number >= most) {
        throw new RangeError(
          `it takes more than ${Math.max(0, most)} states with a vocabulary of ${this.#vocabularySize}`,
        );
      }
      numbers.set(key, number);
      sets.push(set);
      return number;
    };
    numberOf(automaton.closure([begin]));
    const states: TokenState[] = [];
    for (let s = 0; s < sets.length; s++) {
      const next = new Map<number, number>();
      walk(automaton, sets[s], trie, count, (token, set) => next.set(token, numberOf(set)));
      states.push({ accepting: sets[s].includes(end), next });
    }
    return pruned(states, this.#stopTokenIds);
  }
}

/** Every token that is allowed in a set of states, with the set it leads to. */
function walk(
  automaton: CharacterAutomaton,
  set: readonly number[],
  node: TrieNode,
  count: () => void,
  found: (token: number, set: number[]) => void,
): void {
  for (const [character, child] of node.children) {
    count();
    const next = automaton.next(set, character);
    if (next.length === 0) continue;
    for (const token of child.tokens) found(token, next);
    walk(automaton, next, child, count, found);
  }
}

/** Without what leads to no end; ends with a stop token where the text may go on. */
function pruned(states: readonly TokenState[], stopTokenIds: readonly number[]): TokenGrammar {
  const leading = states.map(({ accepting }) => accepting);
  for (let changed = true; changed; ) {
    changed = false;
    states.forEach(({ next }, s) => {
      if (leading[s] || ![...next.values()].some(to => leading[to])) return;
      leading[s] = true;
      changed = true;
    });
  }
  if (!leading[0]) throw new RangeError('no text that fits it can be written with the tokens of this model');
  const last = states.length;
  const written = states.map(({ accepting, next }) => {
    const kept = [...next].filter(([, to]) => leading[to]);
    const ended = accepting && kept.length > 0 ? stopTokenIds.map(id => [id, last] as const) : [];
    const all = [...kept, ...ended];
    return { tokens: all.map(([token]) => token), next: all.map(([, to]) => to) };
  });
  return { start: 0, states: [...written, { tokens: [], next: [] }] };
}

/** The texts of all tokens that are whole characters; special tokens have none. */
function tokenTrie(tokenizer: Tokenizer, vocabularySize: number): TrieNode {
  const root: TrieNode = { children: new Map(), tokens: [] };
  // Some decoders take a space from the first token: another stands in front.
  const [front] = tokenizer.encode('"');
  const before = front === undefined ? '' : tokenizer.decode([front], { skipSpecial: true });
  for (let id = 0; id < Math.min(vocabularySize, tokenizer.vocabularySize); id++) {
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

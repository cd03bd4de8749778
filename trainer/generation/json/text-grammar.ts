import type { JsonObject } from '../../../shared/json.ts';
import type { Sliced } from '../../../shared/slices.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { type TextGrammar, type TokenTrie, visitTokens } from '../grammar.ts';
import { CharacterAutomaton } from './automaton.ts';
import { addSchema, type Framing } from './json-schema.ts';

/** Entries of the table of states and character classes: 2 MiB of them. */
const LARGEST_TABLE = 2 ** 19;
/** Steps between two pauses for other requests. */
const STEPS_AT_ONCE = 256;

/**
 * Steps of a schema's compilation: one for each state of the automaton that a character is tried in, or node of the
 * trie.
 */
export class StepBudget {
  #left: number;
  #yieldAt: number;

  constructor(steps: number) {
    this.#left = steps;
    this.#yieldAt = steps - STEPS_AT_ONCE;
  }

  /** @throws RangeError when there are not this many left */
  *take(steps: number): Sliced<void> {
    this.#left -= steps;
    if (this.#left < 0) throw new RangeError('it takes too long to compile');
    if (this.#left >= this.#yieldAt) return;
    this.#yieldAt = this.#left - STEPS_AT_ONCE;
    yield;
  }
}

/**
 * The JSON texts that fit a schema, with the tokens that spell them.
 * @param framing texts around them
 * @throws RangeError for a schema that an automaton cannot hold, or that these tokens cannot spell
 */
export function* textGrammarOf(
  schema: JsonObject,
  trie: TokenTrie,
  stopTokenIds: readonly number[],
  budget: StepBudget,
  framing?: Framing,
): Sliced<TextGrammar> {
  const automaton = new CharacterAutomaton();
  const begin = automaton.state();
  const end = addSchema(automaton, begin, schema, framing);
  const bounds = automaton.bounds();
  const { next, accepting } = yield* deterministic(automaton, begin, end, bounds, budget);
  const grammar: TextGrammar = {
    trie,
    classes: classesOf(bounds),
    classCount: bounds.length,
    next: shared(Int32Array, next),
    live: shared(Uint8Array, accepting),
    accepting: shared(Uint8Array, accepting),
    final: shared(Uint8Array, new Uint8Array(accepting.length)),
    stopTokenIds,
  };
  yield* findLive(grammar, budget);
  if (grammar.live[0] === 0) {
    throw new RangeError('no text that fits it can be written with the tokens of this model');
  }
  for (const [state, accepts] of accepting.entries()) {
    if (accepts === 0) continue;
    let goesOn = false;
    const steps = visitTokens(grammar, state, () => {
      goesOn = true;
      return true;
    });
    if (!goesOn) grammar.final[state] = 1;
    yield* budget.take(steps);
  }
  return grammar;
}

/** Class i holds the code units from `bounds[i]` up to the next bound: all of them lead to the same states. */
function classesOf(bounds: readonly number[]): Uint16Array {
  const classes = shared(Uint16Array, new Uint16Array(2 ** 16));
  bounds.forEach((bound, i) => {
    classes.fill(i, bound, bounds[i + 1]);
  });
  return classes;
}

function* deterministic(
  automaton: CharacterAutomaton,
  begin: number,
  end: number,
  bounds: readonly number[],
  budget: StepBudget,
): Sliced<{ readonly next: readonly number[]; readonly accepting: readonly number[] }> {
  const numbers = new Map<string, number>();
  const sets: number[][] = [];
  const numberOf = (set: number[]): number => {
    const key = set.join();
    const number = numbers.get(key) ?? sets.length;
    if (number < sets.length) return number;
    if ((number + 1) * bounds.length > LARGEST_TABLE) throw new RangeError('it takes too many states');
    numbers.set(key, number);
    sets.push(set);
    return number;
  };
  numberOf(automaton.closure([begin]));
  const next: number[] = [];
  for (let s = 0; s < sets.length; s++) {
    for (const to of automaton.waysFrom(sets[s], bounds)) {
      const reached = automaton.closure(to);
      next.push(reached.length === 0 ? -1 : numberOf(reached));
      yield* budget.take(1 + to.length + reached.length);
    }
    yield* budget.take(sets[s].length);
  }
  return { next, accepting: sets.map(set => (set.includes(end) ? 1 : 0)) };
}

/** Sets `live` where tokens lead to an accepting state: by single characters if possible, else by trying all tokens. */
function* findLive(grammar: TextGrammar, budget: StepBudget): Sliced<void> {
  const { trie, classes, classCount, next, live } = grammar;
  const before: number[][] = Array.from(live, () => []);
  const spelled = new Set<number>();
  for (let node = 1; node < trie.characters.length; node = trie.ends[node]) {
    if (trie.firstTokens[node] < trie.firstTokens[node + 1]) spelled.add(classes[trie.characters[node]]);
  }
  for (const at of live.keys()) {
    for (const one of spelled) {
      const to = next[at * classCount + one];
      if (to !== -1) before[to].push(at);
    }
    yield* budget.take(1);
  }
  spread(live, before);
  // Every state counts as live at first, so that all tokens are visited.
  const all = { ...grammar, live: new Uint8Array(live.length).fill(1) };
  for (const [at, isLive] of live.entries()) {
    if (isLive === 1) continue;
    const reached = new Set<number>();
    const steps = visitTokens(all, at, (_, state) => {
      reached.add(state);
      return false;
    });
    for (const state of reached) before[state].push(at);
    yield* budget.take(steps);
  }
  spread(live, before);
}

/** A state that leads to a live one is live. */
function spread(live: Uint8Array, before: readonly (readonly number[])[]): void {
  const found = new Set(Array.from(live.keys()).filter(state => live[state] === 1));
  for (const state of found) for (const from of before[state]) found.add(from);
  for (const state of found) live[state] = 1;
}

/** Tokens read between two pauses for other requests. */
const TOKENS_AT_ONCE = 256;

interface TokenText {
  readonly id: number;
  readonly text: string;
}

/** The texts of all tokens that are whole characters; special tokens have none. */
export function* tokenTrie(tokenizer: Tokenizer, vocabularySize: number): Sliced<TokenTrie> {
  /** By their first two characters, so that no sort takes long. */
  const parts = new Map<string, TokenText[]>();
  let length = 1;
  let count = 0;
  for (const token of yield* tokenTexts(tokenizer, vocabularySize)) {
    const key = token.text.slice(0, 2);
    const part = parts.get(key);
    if (part === undefined) parts.set(key, [token]);
    else part.push(token);
    length += token.text.length;
    count++;
  }
  yield;
  const [characters, depths] = [new Uint16Array(length), new Uint16Array(length)];
  const [parents, ends, firstTokens] = [0, 1, 2].map(() => new Int32Array(length + 1));
  const nodes = sharedInts(vocabularySize);
  const tokens = sharedInts(count);
  /** Nodes on the way to the last text, the root first. */
  let path = [0];
  let before = '';
  let node = 0;
  let written = 0;
  for (const key of [...parts.keys()].sort()) {
    for (const { id, text } of parts.get(key)!.sort(byText)) {
      let common = 0;
      while (common < before.length && text.charCodeAt(common) === before.charCodeAt(common)) common++;
      for (const ended of path.slice(common + 1)) ends[ended] = node + 1;
      path = path.slice(0, common + 1);
      for (let at = common; at < text.length; at++) {
        node++;
        characters[node] = text.charCodeAt(at);
        depths[node] = at + 1;
        parents[node] = path[at];
        firstTokens[node] = written;
        path.push(node);
      }
      nodes[id] = node;
      tokens[written++] = id;
      before = text;
    }
    yield;
  }
  for (const ended of path) ends[ended] = node + 1;
  firstTokens[node + 1] = written;
  return {
    characters: shared(Uint16Array, characters.subarray(0, node + 1)),
    depths: shared(Uint16Array, depths.subarray(0, node + 1)),
    parents: shared(Int32Array, parents.subarray(0, node + 1)),
    ends: shared(Int32Array, ends.subarray(0, node + 1)),
    firstTokens: shared(Int32Array, firstTokens.subarray(0, node + 2)),
    tokens,
    nodes,
  };
}

function* tokenTexts(tokenizer: Tokenizer, vocabularySize: number): Sliced<TokenText[]> {
  const texts: TokenText[] = [];
  // Some decoders take a space from the first token: another token comes first here.
  const [front] = tokenizer.encode('"');
  const before = front === undefined ? '' : tokenizer.decode([front], { skipSpecial: true });
  for (let id = 0; id < Math.min(vocabularySize, tokenizer.vocabularySize); id++) {
    if (id % TOKENS_AT_ONCE === 0) yield;
    const whole = tokenizer.decode(front === undefined ? [id] : [front, id], { skipSpecial: true });
    const text = whole.slice(before.length);
    if (text !== '' && !text.includes('\uFFFD')) texts.push({ id, text });
  }
  return texts;
}

/** By code units, the order of the trie's nodes. */
function byText(a: TokenText, b: TokenText): number {
  if (a.text === b.text) return a.id - b.id;
  return a.text < b.text ? -1 : 1;
}

const sharedInts = (length: number) => new Int32Array(new SharedArrayBuffer(4 * length));

/** A copy that threads share. */
function shared<T extends Uint8Array | Uint16Array | Int32Array>(
  kind: { new (buffer: SharedArrayBuffer): T; readonly BYTES_PER_ELEMENT: number },
  values: ArrayLike<number>,
): T {
  const copy = new kind(new SharedArrayBuffer(values.length * kind.BYTES_PER_ELEMENT));
  copy.set(values);
  return copy;
}

import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { fits } from '../../../shared/schema/check.ts';
import { atOnce } from '../../../shared/slices.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { type TextGrammar, type TokenGrammar, type TokenTrie, visitTokens } from '../grammar.ts';
import { type Framing, unmarkedJson } from './json-schema.ts';
import { StepBudget, textGrammarOf, tokenTrie } from './text-grammar.ts';

/** Most steps of a schema, see {@link StepBudget}: a second or two. */
const MAX_STEPS = 2 ** 24;
/** Most nodes of the trie that are looked at for the tokens of all states, and most of those tokens: 16 bytes each. */
const MAX_NODES = 2 ** 26;
const MAX_WAYS = 2 ** 24;

/** Surroundings of the JSON of a response: tokens, and between them texts, which any tokens may spell. */
export interface ResponseFrame extends Framing {
  readonly lead: readonly number[];
  readonly end: readonly number[];
}

/**
 * The grammar of responses with one JSON value that fits a schema. Each text has one spelling where the tokenizer has words: the
 * one that it encodes to, so that a policy does not choose between spellings of one action.
 * @param maxStates most states, see `mostStates`
 * @throws RangeError saying what of the schema no grammar can hold
 */
export function jsonResponseGrammar(
  schema: JsonObject,
  tokenizer: Tokenizer,
  frame: ResponseFrame,
  maxStates: number,
): TokenGrammar {
  const { vocabularySize } = tokenizer;
  const trie = atOnce(tokenTrie(tokenizer, vocabularySize));
  const text = atOnce(textGrammarOf(schema, trie, [], new StepBudget(MAX_STEPS), frame));
  const { lead, end } = frame;
  const { places, next: ways } = spellings(text, tokenizer.words, maxStates);
  const count = places.length;
  if (count + lead.length + end.length > maxStates) throw tooManyStates(count, maxStates);
  const chain = (tokens: readonly number[], from: number, to: number) =>
    tokens.map((token, i) => ({ tokens: [token], next: [i + 1 < tokens.length ? from + i + 1 : to] }));
  const values = places.map((state, place) => {
    const isEnd = text.accepting[state] === 1 && end.length > 0;
    const { tokens, next } = ways[place];
    return isEnd ? { tokens: [...tokens, end[0]], next: [...next, count] } : { tokens, next };
  });
  // The states of the values, those after each token of the end, the last of them final, and those before the values.
  const final = { tokens: [], next: [] };
  const after = end.length > 0 ? [...chain(end.slice(1), count, count + end.length - 1), final] : [];
  const first = count + after.length;
  return {
    start: lead.length > 0 ? first : 0,
    states: [...values, ...after, ...chain(lead, first, 0)],
  };
}

const tooManyStates = (count: number, maxStates: number) =>
  new RangeError(`its ${count} states are more than ${Math.floor(maxStates)}, the most with this vocabulary`);

/** Places that are looked at for each state of a grammar: those from which no end is reached are left out. */
const PLACES_PER_STATE = 16;

/** Tokens that may follow in a place, and the place after each. */
interface Ways {
  readonly tokens: number[];
  readonly next: number[];
}

/**
 * The grammar's states, each as often as it is reached within other words that the tokenizer would write if the text went on to
 * their end: no token may complete one of those, so each text keeps one spelling. Place 0 is the start.
 * @returns the state of each place, and the ways from it
 * @throws RangeError for too many places, or where no text has such a spelling
 */
function spellings(
  text: TextGrammar,
  words: ReadonlySet<number>,
  maxStates: number,
): { readonly places: readonly number[]; readonly next: readonly Ways[] } {
  const { trie, accepting } = text;
  const pendingAfter = wordsBegun(trie, words);
  const numbers = new Map<string, number>();
  const places: { readonly state: number; readonly pending: readonly number[] }[] = [];
  const numberOf = (state: number, pending: readonly number[]): number => {
    const key = [state, ...pending].join();
    const number = numbers.get(key) ?? places.push({ state, pending }) - 1;
    numbers.set(key, number);
    return number;
  };
  numberOf(0, []);
  const ways: Ways[] = [];
  const nodes = new StepBudget(MAX_NODES);
  let count = 0;
  for (const { state, pending } of places) {
    if (places.length > PLACES_PER_STATE * maxStates) throw tooManyStates(places.length, maxStates);
    const way: Ways = { tokens: [], next: [] };
    const looked = visitTokens(text, state, (node, to) => {
      const begun = pendingAfter(pending, node);
      if (begun === undefined) return false;
      const place = numberOf(to, begun);
      for (let i = trie.firstTokens[node]; i < trie.firstTokens[node + 1]; i++) {
        way.tokens.push(trie.tokens[i]);
        way.next.push(place);
      }
      return false;
    });
    ways.push(way);
    atOnce(nodes.take(looked));
    count += way.tokens.length;
    if (count > MAX_WAYS) throw new RangeError(`its states have more than ${MAX_WAYS} tokens together`);
  }
  const before: number[][] = places.map(() => []);
  for (const [place, { next }] of ways.entries()) for (const to of next) before[to].push(place);
  const live = new Set(places.flatMap(({ state }, place) => (accepting[state] === 1 ? [place] : [])));
  for (const place of live) for (const from of before[place]) live.add(from);
  if (!live.has(0)) throw new RangeError('no text that fits it can be written with the tokens of this model');
  const kept = [...live].sort((a, b) => a - b);
  const moved = new Map(kept.map((place, i) => [place, i]));
  const next = kept.map(place => {
    const ends = ways[place].next.map((to, i) => ({ token: ways[place].tokens[i], to: moved.get(to) }));
    const open = ends.filter(({ to }) => to !== undefined);
    return { tokens: open.map(({ token }) => token), next: open.map(({ to }) => to!) };
  });
  return { places: kept.map(place => places[place].state), next };
}

/**
 * Follows words that have begun with other tokens.
 * @returns the nodes that such words have reached after a token of a node, undefined where one of them is complete
 */
function wordsBegun(
  { characters, depths, ends, parents, nodes }: TokenTrie,
  words: ReadonlySet<number>,
): (pending: readonly number[], node: number) => readonly number[] | undefined {
  const isWord = new Set<number>();
  const isBegun = new Set<number>();
  for (const word of words) {
    if (nodes[word] === 0) continue;
    isWord.add(nodes[word]);
    for (let node = parents[nodes[word]]; node > 0; node = parents[node]) isBegun.add(node);
  }
  const childOf = (node: number, character: number): number => {
    let child = node + 1;
    while (child < ends[node] && characters[child] !== character) child = ends[child];
    return child < ends[node] ? child : -1;
  };
  return (pending, node) => {
    if (pending.length === 0) return isBegun.has(node) ? [node] : [];
    const path = new Uint16Array(depths[node]);
    for (let at = node; at > 0; at = parents[at]) path[depths[at] - 1] = characters[at];
    const reached: number[] = isBegun.has(node) ? [node] : [];
    for (const begun of pending) {
      let at = begun;
      for (const character of path) {
        at = childOf(at, character);
        if (isWord.has(at)) return undefined;
        if (!isBegun.has(at)) break;
      }
      if (isBegun.has(at)) reached.push(at);
    }
    return reached.sort((a, b) => a - b);
  };
}

/** Most tokens of a response that a grammar allows; infinite where it may repeat something without end. */
export function longestResponse({ start, states }: TokenGrammar): number {
  const waysIn = new Map([[start, 0]]);
  for (const state of waysIn.keys()) {
    for (const next of new Set(states[state].next)) waysIn.set(next, (waysIn.get(next) ?? 0) + 1);
  }
  // A state is settled once all ways to it are; of states that repeat without end none is.
  const settled = waysIn.get(start) === 0 ? [start] : [];
  const longest = new Map([[start, 0]]);
  let most = 0;
  for (const state of settled) {
    const before = longest.get(state)!;
    most = Math.max(most, before);
    for (const next of new Set(states[state].next)) {
      longest.set(next, Math.max(longest.get(next) ?? 0, before + 1));
      const left = waysIn.get(next)! - 1;
      waysIn.set(next, left);
      if (left === 0) settled.push(next);
    }
  }
  return settled.length < waysIn.size ? Number.POSITIVE_INFINITY : most;
}

/** The text of a value as these grammars spell it: properties in the order of the schema. */
export function responseJson(value: Json, schema: JsonObject): string {
  return unmarkedJson(ordered(value, schema));
}

function ordered(value: Json, schema: Json | undefined): Json {
  if (!isObject(schema)) return value;
  const { properties = {}, items, prefixItems, anyOf, oneOf } = schema;
  const alternatives = anyOf ?? oneOf;
  if (Array.isArray(alternatives)) {
    return ordered(
      value,
      alternatives.find(one => fits(one as JsonObject, value)),
    );
  }
  if (Array.isArray(value)) {
    return value.map((item, i) => ordered(item, Array.isArray(prefixItems) ? prefixItems[i] : items));
  }
  if (typeof value !== 'object' || value === null) return value;
  const given = value as JsonObject;
  const known = Object.keys(properties as JsonObject).filter(name => Object.hasOwn(given, name));
  const names = [...new Set([...known, ...Object.keys(given)])];
  return Object.fromEntries(
    names.map(name => [name, ordered(given[name], (properties as JsonObject)[name])]),
  );
}

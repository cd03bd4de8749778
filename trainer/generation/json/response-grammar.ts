import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { fits } from '../../../shared/schema/check.ts';
import { atOnce } from '../../../shared/slices.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { type TokenGrammar, visitTokens } from '../grammar.ts';
import { type Framing, unmarkedJson } from './json-schema.ts';
import { StepBudget, textGrammarOf, tokenTrie } from './text-grammar.ts';

/** Most steps of a schema, see {@link StepBudget}: seconds. */
const MAX_STEPS = 2 ** 26;

/** Surroundings of the JSON of a response: tokens, and between them texts, which any tokens may spell. */
export interface ResponseFrame extends Framing {
  readonly lead: readonly number[];
  readonly end: readonly number[];
}

/**
 * The grammar of responses with one JSON value that fits a schema.
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
  const count = text.live.length;
  if (count + lead.length + end.length > maxStates) {
    throw new RangeError(
      `its ${count} states are more than ${Math.floor(maxStates)}, the most with this vocabulary`,
    );
  }
  const chain = (tokens: readonly number[], from: number, to: number) =>
    tokens.map((token, i) => ({ tokens: [token], next: [i + 1 < tokens.length ? from + i + 1 : to] }));
  const values = Array.from({ length: count }, (_, state) => {
    const tokens: number[] = [];
    const next: number[] = [];
    visitTokens(text, state, (node, to) => {
      for (let i = trie.firstTokens[node]; i < trie.firstTokens[node + 1]; i++) {
        tokens.push(trie.tokens[i]);
        next.push(to);
      }
      return false;
    });
    if (text.accepting[state] === 1 && end.length > 0) {
      tokens.push(end[0]);
      next.push(count);
    }
    return { tokens, next };
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

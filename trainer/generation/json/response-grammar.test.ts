import t from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { fits } from '../../../shared/schema/check.ts';
import { buildByteTokenizer } from '../../models/tokenizer/builder.ts';
import { compileGrammar, grammarStates, type TokenGrammar } from '../grammar.ts';
import { jsonResponseGrammar, responseJson } from './response-grammar.ts';

const tokenizer = buildByteTokenizer(['</think>', '<answer>', '</answer>', '{"tool":"add","a":']);
const [think, answer, end] = ['</think>', '<answer>', '</answer>'].map(word => tokenizer.idOf(word)!);
const SCHEMA: JsonObject = {
  type: 'object',
  properties: {
    tool: { enum: ['add', 'a|b'] },
    a: { type: 'integer', minimum: -3, exclusiveMaximum: 11 },
    where: { type: 'array', prefixItems: [{ type: 'boolean' }, { const: null }], minItems: 2, maxItems: 2 },
    note: { type: 'string', maxLength: 4 },
  },
  required: ['tool', 'a'],
  additionalProperties: false,
};
const tagged = { lead: [think, answer], end: [end], before: '', after: '' };
const spelled = { lead: [], end: [], before: '</think><answer>', after: '</answer>' };

/** A random response of a grammar. */
function sampled({ start, states }: TokenGrammar, rng: Random): number[] {
  const ids: number[] = [];
  for (let at = start; states[at].tokens.length > 0; ) {
    const way = rng.integer(states[at].tokens.length);
    ids.push(states[at].tokens[way]);
    at = states[at].next[way];
  }
  return ids;
}

for (const [name, frame] of Object.entries({ tagged, spelled })) {
  t.test(`every ${name} response holds JSON that fits the schema, and no mark`, async t => {
    const grammar = jsonResponseGrammar(SCHEMA, tokenizer, frame, 4096);
    const rng = Random.fromSeed(0);
    for (let i = 0; i < 100; i++) {
      const text = tokenizer.decode(sampled(grammar, rng));
      const json = /^<\/think><answer>([^<|]*)<\/answer>$/.exec(text)?.[1];
      t.ok(fits(SCHEMA, JSON.parse(json ?? 'null')), text);
    }
  });
}

t.test('an action is spelled as the grammar allows in any order of its keys', async t => {
  const compiled = compileGrammar(
    'json',
    jsonResponseGrammar(SCHEMA, tokenizer, tagged, 4096),
    tokenizer.vocabularySize,
  );
  const action: Json = { note: '<|x', where: [true, null], a: 10, tool: 'a|b' };
  const json = responseJson(action, SCHEMA);
  t.equal(json, '{"tool":"a\\u007cb","a":10,"where":[true,null],"note":"\\u003c\\u007cx"}');
  t.same(JSON.parse(json), action);
  const allowed = (value: Json) => {
    const ids = tokenizer.encode(`</think><answer>${responseJson(value, SCHEMA)}</answer>`);
    return grammarStates(compiled, ids, Array(ids.length).fill(1), -1);
  };
  t.ok(allowed(action));
  t.equal(allowed({ a: 1, tool: 'add' }).length, 6, 'parts of actions are one token');
  t.throws(() => allowed({ tool: 'add', a: 11 }), /is not allowed in state/);
  const either: JsonObject = { anyOf: [{ const: 1 }, { type: 'object', properties: { b: {}, a: {} } }] };
  t.equal(responseJson({ a: [], b: {} }, either), '{"b":{},"a":[]}');
});

t.test('what no grammar can hold is named', async t => {
  const refused = (message: RegExp, schema: JsonObject, maxStates = 4096) =>
    t.throws(() => jsonResponseGrammar(schema, tokenizer, tagged, maxStates), message);
  refused(/needs both, with 1 to 1024 values/, { type: 'integer', minimum: 0 });
  refused(/keyword "minimum" is not supported/, { type: 'number', minimum: 0 });
  refused(/prefixItems must list as many items/, { type: 'array', prefixItems: [{}] });
  refused(/its \d+ states are more than 10, the most with this vocabulary/, SCHEMA, 10);
});

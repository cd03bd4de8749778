import t from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { fits } from '../../../shared/schema/check.ts';
import { buildByteTokenizer } from '../../models/tokenizer/builder.ts';
import { compileGrammar, grammarStates, type TokenGrammar } from '../grammar.ts';
import { jsonResponseGrammar, longestResponse, responseJson } from './response-grammar.ts';

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

t.test('each action has one spelling, the one that the tokenizer writes', async t => {
  const words = ['{"job":', ',"dock":', ',"dock":"a"}', '}', '{"job":1', '</answer>'];
  const byWords = buildByteTokenizer(words);
  const schema: JsonObject = {
    type: 'object',
    properties: { job: { type: 'integer', minimum: 0, maximum: 12 }, dock: { enum: ['a', 'b', 7] } },
    required: ['job', 'dock'],
    additionalProperties: false,
  };
  const frame = { lead: [], end: [byWords.idOf('</answer>')!], before: '', after: '' };
  const grammar = jsonResponseGrammar(schema, byWords, frame, 4096);
  const rng = Random.fromSeed(0);
  const texts = new Set<string>();
  for (let i = 0; i < 1000; i++) {
    const ids = sampled(grammar, rng);
    const text = byWords.decode(ids);
    texts.add(text);
    t.same(ids, byWords.encode(text), text);
  }
  t.equal(texts.size, 39, 'none is missing');
  t.equal(longestResponse(grammar), 8, '{"job":1 2 ,"dock": " b " } and the end');
});

t.test('what no grammar can hold is named', async t => {
  const refused = (message: RegExp, schema: JsonObject, maxStates = 4096) =>
    t.throws(() => jsonResponseGrammar(schema, tokenizer, tagged, maxStates), message);
  refused(/no integer lies between its minimum and maximum/, { type: 'integer', minimum: 1, maximum: 0.5 });
  refused(/no number of 6 decimals lies between/, { type: 'number', exclusiveMinimum: 1, maximum: 1 });
  refused(/exclusiveMaximum must be a number, got "2"/, { type: 'integer', exclusiveMaximum: '2' });
  refused(/its pattern allows 2 to 4 characters, minLength and maxLength 3 to Infinity/, {
    type: 'string',
    pattern: '^(ab){1,2}$',
    minLength: 3,
  });
  for (const [pattern, reason] of [
    ['a', 'it must begin with ^'],
    ['^a|b$', 'alternatives of the whole belong in a group'],
    ['^(?=a)a$', 'a group may only begin with'],
    ['^(a)\\1$', '\\\\1 is not supported'],
    ['^a+?$', '\\? after a repetition'],
    ['^a{3,2}$', '\\{3,2\\} must go up'],
    ['^[b-a]$', 'two characters in their order'],
    [`^[^${'a'.repeat(1000)}]$`, 'it has more than 1000 characters'],
  ]) {
    refused(new RegExp(`keyword "pattern" is not supported for .*: .*${reason.replace('^', '\\^')}`), {
      type: 'string',
      pattern,
    });
  }
  refused(/prefixItems must list as many items/, { type: 'array', prefixItems: [{}] });
  refused(/its \d+ states are more than 10, the most with this vocabulary/, SCHEMA, 10);
});

t.test(
  'numbers of any bounds and strings of a pattern fit their schema, and the longest is known',
  async t => {
    const wanted: readonly (readonly [schema: JsonObject, longest: number, states: number])[] = [
      [{ type: 'integer' }, 16, 22],
      [{ type: 'integer', minimum: 1 }, 16, 50],
      [{ type: 'integer', exclusiveMinimum: -3.5, maximum: 1234 }, 4, 22],
      [{ type: 'integer', minimum: 2 ** 52 }, 16, 80],
      [{ type: 'number' }, 36, 44],
      [{ type: 'number', minimum: 0 }, 22, 70],
      [{ type: 'number', exclusiveMinimum: 0, exclusiveMaximum: 1 }, 8, 26],
      [{ type: 'number', minimum: -0.25, maximum: 0.1 }, 9, 40],
      [{ type: 'number', minimum: 1e-9, maximum: 2e-8 }, 11, 24],
      [{ type: 'number', exclusiveMinimum: 123456789012 }, 19, 100],
      [{ type: 'string', pattern: '^[a-z ]+$', minLength: 2, maxLength: 5 }, 7, 14],
      [{ type: 'string', pattern: '^(go|take) [a-z"|\\\\]{2,4}$' }, 31, 55],
      [{ type: 'string', pattern: '^\\d{3}-(?:x|\\w.)?[^a-z]$', maxLength: 9 }, 19, 150],
      [{ type: 'string', pattern: '^a*$' }, Number.POSITIVE_INFINITY, 10],
    ];
    for (const [schema, longest, states] of wanted) {
      const grammar = jsonResponseGrammar(schema, tokenizer, tagged, 4096);
      const name = JSON.stringify(schema);
      t.equal(longestResponse(grammar), longest + 3, `${name} with its tags`);
      t.ok(grammar.states.length <= states, `${name}: ${grammar.states.length} states`);
      const rng = Random.fromSeed(0);
      for (let i = 0; i < 100; i++) {
        const ids = sampled(grammar, rng);
        const json = tokenizer.decode(ids).slice('</think><answer>'.length, -'</answer>'.length);
        if (!fits(schema, JSON.parse(json))) t.fail(`${json} does not fit ${name}`);
      }
    }
  },
);

t.test('a schema that would take minutes or gigabytes is refused', async t => {
  const refused = (message: RegExp, schema: JsonObject, by = tokenizer) =>
    t.throws(() => jsonResponseGrammar(schema, by, { ...tagged, lead: [], end: [] }, 4096), message);
  const letters = Array.from({ length: 480 }, (_, i) => String.fromCharCode(0x4e00 + 2 * i)).join('');
  refused(/it takes too long to compile/, { type: 'string', pattern: `^([${letters}]?){512}$` });
  const one: JsonObject = { type: 'string', pattern: `^[${letters}]$` };
  const many = Array.from({ length: 8000 }, () => ({ $ref: '#/$defs/one' }));
  refused(/it takes too many states/, { $defs: { one }, anyOf: many });
  const words = [...'"', ...Array.from({ length: 32_768 }, (_, i) => i.toString(36))];
  const large = {
    vocabularySize: words.length,
    words: new Set<number>(),
    encode: () => [0],
    decode: (ids: readonly number[]) => ids.map(id => words[id]).join(''),
  };
  refused(
    /its states have more than 16777216 tokens together/,
    { type: 'string', pattern: '^[0-9a-z]{512}[0-9a-z]{512}$' },
    {
      ...tokenizer,
      ...large,
    },
  );
});

t.test('the longest response of a long chain is known, and of a circle there is none', async t => {
  const chain = Array.from({ length: 50_000 }, (_, i) => ({ tokens: [1], next: [i + 1] }));
  const last = chain.length;
  t.equal(longestResponse({ start: 0, states: [...chain, { tokens: [], next: [] }] }), last);
  t.equal(longestResponse({ start: 0, states: [...chain, { tokens: [1], next: [0] }] }), Infinity);
  t.equal(longestResponse({ start: 0, states: [...chain, { tokens: [1], next: [last] }] }), Infinity);
});

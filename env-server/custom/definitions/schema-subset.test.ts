import t from 'tap';
import { Compile } from 'typebox/compile';
import { Value } from 'typebox/value';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { resolveAgainst } from '../../environments/core/settings.ts';
import type { Problem } from '../../problems.ts';
import { DefinitionFaults } from './fault.ts';
import { compileSubset } from './schema-subset.ts';

function compile(schema: Json) {
  const faults = new DefinitionFaults();
  const compiled = compileSubset(schema, '/config_schema', faults);
  faults.raise();
  return compiled;
}

function faultsOf(schema: Json): string[] {
  try {
    compile(schema);
    return [];
  } catch (error) {
    return ((error as Problem).violations ?? []).map(({ pointer, detail }) => `${pointer}: ${detail}`);
  }
}

t.test('fills in defaults and refuses what does not fit', async t => {
  const schema = compile({
    type: 'object',
    properties: {
      size: { type: 'integer', minimum: 2, maximum: 9, default: 4 },
      mode: { type: 'string', enum: ['easy', 'hard'], default: 'easy' },
      names: { type: 'array', items: { type: 'string', maxLength: 5 }, maxItems: 2 },
      speed: { type: 'integer', enum: [1, 2, 4] },
      inner: { type: 'object', properties: { p: { type: 'number', default: 0.5 } }, default: {} },
    },
  });
  t.same(resolveAgainst(schema, {}), {
    value: { size: 4, mode: 'easy', inner: { p: 0.5 } },
    fault: undefined,
  });
  const wrong: JsonObject[] = [
    { size: 1 },
    { size: 'x' },
    { mode: 'odd' },
    { speed: 3 },
    { speed: '1' },
    { names: ['abcdef'] },
    { other: 1 },
  ];
  for (const value of wrong) t.ok(resolveAgainst(schema, value).fault, JSON.stringify(value));
  t.notOk(resolveAgainst(schema, { names: ['a', 'b'], speed: 4 }).fault);
});

t.test('a list of a fixed length has a schema for each item', async t => {
  const at = { type: 'object', properties: { x: { type: 'number', maximum: 2.5, default: 1 } } };
  const list = (prefixItems: Json): JsonObject => ({ type: 'array', prefixItems, minItems: 2, maxItems: 2 });
  const schema = compile({ type: 'object', properties: { move: list([{ type: 'integer' }, at]) } });
  t.same(resolveAgainst(schema, { move: [1, {}] }).value, { move: [1, { x: 1 }] });
  for (const move of [[1], [1, {}, 2], [0.5, {}], [1, { x: 3 }], 'x'])
    t.ok(resolveAgainst(schema, { move }).fault, JSON.stringify(move));
  t.match(faultsOf(list(7)), [/prefixItems: must be a list of schemas/]);
  t.match(faultsOf(list([{ type: 'null' }])), [/prefixItems: takes minItems and maxItems, both the number/]);
  t.match(faultsOf(list([{ type: 'null' }, { type: 'odd' }])), [/prefixItems\/1\/type: must be one of/]);
});

t.test('a property is needed when it is required or has a default', async t => {
  const schema = compile({
    type: 'object',
    required: ['a'],
    properties: { a: { type: 'boolean' }, b: { type: 'null' } },
  });
  t.notOk(Value.Check(schema, {}));
  t.ok(Value.Check(schema, { a: true }));
  t.ok(Value.Check(schema, { a: true, b: null }));
});

t.test('slow, circular and dangerous schemas are refused with their place', async t => {
  t.match(faultsOf({ type: 'string', pattern: '(a+)+$' }), [
    /^\/definition\/config_schema\/pattern: unknown keyword/,
  ]);
  t.match(faultsOf({ $ref: '#' }), [/config_schema\/type: must be one of object, array/]);
  t.match(faultsOf({ type: 'object', properties: { __proto__x: { type: 'string' } } }), []);
  t.match(faultsOf(JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string"}}}')), [
    /properties\/__proto__: a property is named/,
  ]);
  t.match(faultsOf({ type: 'object', properties: { 'a"]);process.exit()//': { type: 'string' } } }), [
    /a property is named/,
  ]);
  t.match(faultsOf({ type: 'object', additionalProperties: true }), [/only the properties they name/]);
  t.match(faultsOf({ type: 'integer', default: 'x' }), [/the default does not fit/]);
  t.match(faultsOf({ type: 'integer', minimum: '1' }), [/must be a number/]);
  t.match(faultsOf({ type: 'string', enum: [] }), [/1 to 1000 strings/]);
  t.match(faultsOf({ type: 'integer', enum: [1, 1.5] }), [/enum: must be a list of 1 to 1000 whole numbers/]);
  t.match(faultsOf({ type: 'number', enum: [1, 7], maximum: 5 }), [/numbers within the other keywords/]);
  t.match(faultsOf({ type: 'object', required: ['x'] }), [/"x" is not one of the properties/]);
  t.match(faultsOf({ type: 'object', properties: [] }), [/must be an object of schemas/]);
  t.match(faultsOf(null), [/a schema is an object/]);
  let deep: Json = { type: 'string' };
  for (let i = 0; i < 12; i++) deep = { type: 'array', items: deep };
  t.match(faultsOf(deep), [/nested at most 8 deep/]);
  const wide = Object.fromEntries(Array.from({ length: 600 }, (_, i) => [`p${i}`, { type: 'null' }]));
  t.match(faultsOf({ type: 'object', properties: wide })[0], /at most 500 parts/);
});

t.test('strings of a schema stay strings in the compiled checks', async t => {
  const nasty = [
    '"];process.exit(7);//',
    '`$' + '{process.exit(7)}`',
    "');process.exit(7);('",
    '\u2028',
    '*/process.exit(7)/*',
  ];
  const schema = compile({
    type: 'object',
    title: nasty[0],
    description: nasty[4],
    properties: { choice: { type: 'string', enum: nasty, default: nasty[1] } },
  });
  const validator = Compile(schema);
  for (const choice of nasty) t.ok(validator.Check({ choice }));
  t.notOk(validator.Check({ choice: 'other' }));
});

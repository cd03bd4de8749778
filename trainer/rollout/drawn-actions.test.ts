import t from 'tap';
import type { JsonObject } from '../../shared/json.ts';
import { fits } from '../../shared/schema/check.ts';
import { DRAWN_SPAN, drawnActions, hasUnboundedNumbers, spanned } from './drawn-actions.ts';

t.test('drawn actions fit their schema and differ', async t => {
  const schemas: JsonObject[] = [
    {
      type: 'object',
      properties: {
        tool: { type: 'string', enum: ['add', 'search'] },
        a: { type: 'integer', minimum: 0, maximum: 9 },
        x: { type: 'number', exclusiveMinimum: -1, maximum: 1 },
        text: { type: 'string', minLength: 6 },
        list: { type: 'array', items: { type: 'boolean' }, maxItems: 200 },
      },
      required: ['tool'],
      additionalProperties: false,
    },
    {
      type: 'array',
      prefixItems: [{ type: 'integer', maximum: 3 }, { const: null }],
      minItems: 2,
      maxItems: 2,
    },
    { type: 'array', items: { type: 'string', pattern: '^[a-f]{1,3}-\\d?$', maxLength: 600 }, minItems: 2 },
    { type: 'string', pattern: '^[a-z]*$', minLength: 3, maxLength: 8 },
    { type: 'string', pattern: '^[a-z]+ (the )*[a-z]+$', maxLength: 24 },
    {
      $defs: {
        node: { type: 'object', properties: { go: { enum: [1, 2] }, next: { $ref: '#/$defs/node' } } },
      },
      anyOf: [{ $ref: '#/$defs/node' }, { type: 'null' }],
    },
    { type: 'array', items: { type: 'number', minimum: -0.001, maximum: 0.0015 }, minItems: 1, maxItems: 1 },
    { anyOf: [{ const: 'stop' }, { type: ['integer', 'null'], exclusiveMaximum: 0 }] },
  ];
  for (const schema of schemas) {
    const actions = drawnActions(schema)!;
    t.ok(actions.length > 2);
    t.equal(new Set(actions.map(action => JSON.stringify(action))).size, actions.length);
    for (const action of actions) t.ok(fits(schema, action), JSON.stringify(action));
  }
  t.same(drawnActions(schemas[0]), drawnActions(schemas[0]), 'the same every time');
  const open = drawnActions({ type: 'integer', minimum: 1 }) as number[];
  t.ok(
    open.some(value => value > 100) && open.some(value => value <= 10),
    'of several sizes without a bound',
  );
  t.same(drawnActions({ type: 'number', minimum: 0.125, maximum: 0.125 }), [0.125]);
  t.same(drawnActions({ type: 'boolean' })!.toSorted(), [false, true]);
});

t.test('nothing is drawn where a schema does not say what an action looks like', async t => {
  for (const schema of [
    { type: 'object' },
    {},
    { type: 'string', pattern: 'a' },
    { type: 'array', minItems: 1 },
    { $ref: '#' },
    { $ref: '#/$defs/none' },
    { type: 'object', properties: null },
    { type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] },
  ]) {
    t.equal(drawnActions(schema as JsonObject), undefined, JSON.stringify(schema));
  }
});

t.test('a pattern that repeats nothing takes no time', async t => {
  const nested = `^${'('.repeat(12)}a{0}${'){512}'.repeat(12)}b$`;
  t.same(drawnActions({ type: 'string', pattern: nested }), ['b']);
});

t.test('nothing is drawn from a short schema of endless actions, which takes no time', async t => {
  const many = (items: JsonObject): JsonObject => ({ type: 'array', items, minItems: 1000 });
  for (const schema of [
    { type: 'array', items: { type: 'boolean' }, minItems: 1e12 },
    { type: 'string', minLength: 1e12 },
    many(many(many({ type: 'null' }))),
    many({ type: 'string', minLength: 1000 }),
    { type: 'string', pattern: '^((a{512}){512}){512}$', maxLength: 1e12 },
  ]) {
    t.equal(drawnActions(schema as JsonObject), undefined, JSON.stringify(schema));
  }
});

t.test('numbers without a bound reach as far as drawn ones under a span', async t => {
  const schema: JsonObject = {
    type: 'object',
    properties: {
      price: { type: 'integer', minimum: 1 },
      minimum: { type: ['number', 'null'], exclusiveMinimum: 0 },
      depth: { type: 'integer', exclusiveMaximum: 0 },
      list: { type: 'array', items: { anyOf: [{ type: 'integer' }, { const: 5000 }] } },
      day: { type: 'integer', minimum: 1, maximum: 7 },
      year: { type: 'integer', enum: [1999, -1] },
    },
    required: ['price', 'minimum', 'depth', 'list', 'day', 'year'],
  };
  const bounded = spanned(schema, DRAWN_SPAN) as JsonObject;
  t.match(bounded, {
    properties: {
      price: { minimum: 1, maximum: 1000 },
      minimum: { exclusiveMinimum: 0, maximum: 1000 },
      depth: { minimum: -1000, exclusiveMaximum: 0 },
      list: { items: { anyOf: [{ minimum: 0, maximum: 999 }, { const: 5000 }] } },
      day: { minimum: 1, maximum: 7 },
    },
  });
  for (const action of drawnActions(schema)!) t.ok(fits(bounded, action), JSON.stringify(action));
  t.same([hasUnboundedNumbers(schema), hasUnboundedNumbers(bounded)], [true, false]);
  const referring = { $ref: '#/definitions/a', definitions: { a: { type: 'integer' } }, $defs: null };
  t.match(spanned(referring, 9), { definitions: { a: { minimum: 0, maximum: 9 } }, $defs: null });
});

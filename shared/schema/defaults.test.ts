import fc from 'fast-check';
import t from 'tap';
import { Type as Library, type TSchema } from 'typebox';
import { Default } from 'typebox/value';
import { BUILT_IN } from '../../env-server/environments/registry.ts';
import { fillDefaults } from './check.ts';
import { Type } from './type.ts';

const leaf = fc.oneof(
  fc.option(fc.integer({ min: 0, max: 3 }), { nil: undefined }).map(value => Type.Integer(given(value))),
  fc.option(fc.constantFrom('', 'x', 'y'), { nil: undefined }).map(value => Type.String(given(value))),
  fc.option(fc.boolean(), { nil: undefined }).map(value => Type.Boolean(given(value))),
  fc.constant(Type.Null()),
);
const { schema } = fc.letrec<{ schema: TSchema }>(tie => ({
  schema: fc.oneof(
    { maxDepth: 3 },
    leaf,
    tie('schema').map(items => Type.Array(items)),
    fc.array(tie('schema'), { minLength: 1, maxLength: 2 }).map(items => Type.Tuple(items)),
    fc.array(tie('schema'), { minLength: 1, maxLength: 3 }).map(anyOf => Type.Union(anyOf)),
    fc
      .tuple(tie('schema'), fc.boolean())
      .map(([value, bare]) =>
        Type.Record(Type.String(bare ? {} : { pattern: '^a' }), value, { additionalProperties: value }),
      ),
    fc
      .record({ a: tie('schema'), b: tie('schema').map(inner => Type.Optional(inner)), rest: tie('schema') })
      .chain(({ rest, ...properties }) =>
        fc
          .constantFrom({}, { additionalProperties: false }, { additionalProperties: rest }, { default: {} })
          .map(options => Type.Object(properties, options as { default?: unknown })),
      ),
  ),
}));
const values = fc.letrec(tie => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.constantFrom(undefined, null, 0, 1, '', 'x', true),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom('a', 'b', 'ab', 'c'), tie('value'), { maxKeys: 3, noNullPrototype: true }),
  ),
})).value;

const given = (value: unknown): { default?: unknown } => (value === undefined ? {} : { default: value });

t.test('defaults are those that the library fills in', t => {
  fc.assert(
    fc.property(schema, values, (schema, value) => {
      const theirs = Default(schema, structuredClone(value));
      t.strictSame(fillDefaults(schema, structuredClone(value)), theirs);
    }),
    { numRuns: 500 },
  );
  for (const { spec } of BUILT_IN) {
    for (const schema of [spec.configSchema, spec.optionsSchema]) {
      t.strictSame(fillDefaults(schema, {}), Default(schema, {}), spec.id);
    }
  }
  t.end();
});

t.test('a default is a copy, and may be made by a function', t => {
  const list = Type.Object({ all: Type.Array(Type.Integer(), { default: [1] }) });
  const first = fillDefaults(list, {}) as { all: number[] };
  first.all.push(2);
  t.strictSame(fillDefaults(list, {}), { all: [1] });
  let calls = 0;
  const made = Type.Object({ n: Type.Integer({ default: () => ++calls }) });
  t.strictSame([fillDefaults(made, {}), fillDefaults(made, {})], [{ n: 1 }, { n: 2 }]);
  t.end();
});

t.test('schemas with references are left to the library', t => {
  const part = Library.Object({ n: Library.Integer({ default: 3 }) });
  const whole = Library.Object({ in: Library.Intersect([part, Library.Object({ m: Library.Null() })]) });
  t.strictSame(fillDefaults(whole, { in: { m: null } }), { in: { m: null, n: 3 } });
  t.end();
});

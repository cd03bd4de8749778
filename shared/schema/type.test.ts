import t from 'tap';
import { Type as Library } from 'typebox';
import { Type } from './type.ts';

/** A schema with its markers at every depth: its JSON in order, and the properties that JSON omits. */
function everything(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(everything);
  const described = Object.entries(Object.getOwnPropertyDescriptors(value));
  return {
    shown: described.filter(([, { enumerable }]) => enumerable).map(([name]) => name),
    all: Object.fromEntries(
      described.map(([name, { value: member, ...flags }]) => [
        name,
        { ...flags, member: everything(member) },
      ]),
    ),
  };
}

t.test('schemas are those of the library, with its marks', t => {
  const schemasOf = (T: typeof Type) => ({
    array: T.Array(T.String({ maxLength: 3 }), { minItems: 1 }),
    boolean: T.Boolean({ default: true }),
    enum: T.Enum(['a', 'b'], { type: 'string' }),
    integer: T.Integer({ minimum: 0 }),
    literals: [T.Literal('x'), T.Literal(1, { description: 'one' }), T.Literal(true)],
    null: T.Null(),
    number: T.Number({ maximum: 1 }),
    object: T.Object({ a: T.Null(), b: T.Optional(T.Null()) }, { additionalProperties: false }),
    lacking: T.Object({ b: T.Optional(T.String({ default: 'x' })) }),
    empty: T.Object({}),
    optional: T.Optional(T.Object({ a: T.Integer() })),
    record: T.Record(T.String(), T.Integer(), { maxProperties: 3 }),
    pattern: T.Record(T.String({ pattern: '^x' }), T.Integer()),
    string: T.String(),
    tuple: T.Tuple([T.Integer(), T.String()], { description: 'two' }),
    union: T.Union([T.Null(), T.String()], { default: null }),
    unknown: T.Unknown({ description: 'any' }),
    unsafe: T.Unsafe<string>({ type: 'string' }),
    both: T.Optional(T.Unsafe<string>(T.Union([T.Null(), T.String()]))),
  });
  const own = schemasOf(Type);
  const theirs = schemasOf(Library as unknown as typeof Type);
  for (const name of Object.keys(own) as (keyof typeof own)[]) {
    t.same(everything(own[name]), everything(theirs[name]), name);
  }
  t.end();
});

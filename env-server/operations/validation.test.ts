import t from 'tap';
import { type TSchema, Type } from 'typebox';
import { DEFINITIONS } from '../custom/definitions/definition.ts';
import { Wrappers } from './schemas/fields.ts';
import { OPERATIONS } from './table.ts';
import { compileCheck } from './validation.ts';

interface Node {
  readonly [key: string]: unknown;
}

/** Paths in a schema where it allows any number of items, keys or characters. */
function* unbounded(schema: Node, place: string): Generator<string> {
  const {
    type,
    anyOf = [],
    items,
    properties = {},
    patternProperties = {},
  } = schema as {
    readonly type?: string;
    readonly anyOf?: readonly Node[];
    readonly items?: Node;
    readonly properties?: { readonly [key: string]: Node };
    readonly patternProperties?: { readonly [key: string]: Node };
  };
  const isFixed = 'enum' in schema || 'const' in schema || 'pattern' in schema;
  if (type === 'string' && !isFixed && !('maxLength' in schema)) yield `${place}: characters`;
  if (type === 'array' && !('maxItems' in schema)) yield `${place}: items`;
  const isMap = type === 'object' && (schema.additionalProperties !== false || 'patternProperties' in schema);
  if (isMap && !('maxProperties' in schema)) yield `${place}: keys`;
  for (const [i, one] of anyOf.entries()) yield* unbounded(one, `${place}|${i}`);
  if (items) yield* unbounded(items, `${place}[]`);
  for (const [key, part] of Object.entries({ ...properties, ...patternProperties })) {
    yield* unbounded(part, `${place}/${key}`);
  }
}

t.test('every list, map and text of a request has a bound', async t => {
  const schemas: [string, TSchema][] = [...OPERATIONS].flatMap(operation =>
    (['params', 'query', 'body'] as const).map((part): [string, TSchema] => [
      `${operation.name} ${part}`,
      Type.Object(operation[part].properties, { additionalProperties: false }),
    ]),
  );
  const { remote, ...kinds } = DEFINITIONS;
  schemas.push(...Object.entries({ ...kinds, ...remote }));
  t.ok(schemas.length > 20);
  t.same(
    schemas.flatMap(([name, schema]) => [...unbounded(schema as unknown as Node, name)]),
    [],
  );
});

t.test('a list that is too long is refused before its items are looked at', async t => {
  let reads = 0;
  const list = new Proxy(new Array(30_000).fill({ nam: 'time_limit' }), {
    get(target, key) {
      if (key !== 'length') reads++;
      return Reflect.get(target, key);
    },
  });
  const check = compileCheck(Type.Object({ wrappers: Wrappers }), 'create');
  t.throws(() => check({ wrappers: list }), {
    code: 'invalid_request',
    message: /^create: wrappers must not have more than 16 items, got a list of 30000/,
  });
  t.ok(reads < 10, `${reads} reads`);
});

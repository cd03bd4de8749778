import t from 'tap';
import { Compile } from 'typebox/compile';
import type { Json } from '../../shared/json.ts';
import {
  cell,
  choice,
  dict,
  FLAG,
  gymnasiumSpace,
  integers,
  jsonSchema,
  list,
  number,
  orNull,
  type Space,
  text,
  tuple,
  whyOutside,
} from './core/spaces.ts';

interface Case {
  readonly space: Space;
  readonly members: readonly Json[];
  readonly others: readonly Json[];
  readonly gymnasium: object;
}

const CASES: { readonly [name: string]: Case } = {
  discrete: {
    space: { type: 'Discrete', n: 2, start: 1, names: ['a', 'b'] },
    members: [1, 2, 'a', 'b'],
    others: [0, 3, 1.5, 'c', null],
    gymnasium: { type: 'Discrete', n: 2, start: 1 },
  },
  text: {
    space: { type: 'Text', minLength: 1, maxLength: 3 },
    members: ['a', '√√√'],
    others: ['', 'abcd', 5, null],
    gymnasium: { type: 'Text', min_length: 1, max_length: 3, charset: null },
  },
  choice: {
    space: choice('on', 'off'),
    members: ['on', 'off'],
    others: ['no', '', 1],
    gymnasium: { type: 'Text', min_length: 2, max_length: 3, charset: 'fno' },
  },
  'whole numbers': {
    space: integers(0, 9, 2, 3),
    members: [
      [
        [0, 1, 2],
        [9, 9, 9],
      ],
    ],
    others: [
      5,
      [[0, 1, 2]],
      [
        [0, 1],
        [2, 3],
      ],
      [
        [0, 1, 2],
        [9, 9, 10],
      ],
      [
        [0, 1, 2],
        [9, 9, 0.5],
      ],
    ],
    gymnasium: { type: 'Box', low: 0, high: 9, shape: [2, 3], dtype: 'uint8' },
  },
  'a number': {
    space: number(),
    members: [0, -1e300, 0.25],
    others: ['1', null, [1]],
    gymnasium: { type: 'Box', low: null, high: null, shape: [], dtype: 'float64' },
  },
  'a cell': {
    space: cell(2, 3),
    members: [
      [0, 0],
      [1, 2],
    ],
    others: [[2, 0], [0, 3], [0], [-1, 0], [0, 0.5], 0],
    gymnasium: { type: 'MultiDiscrete', nvec: [2, 3] },
  },
  bits: {
    space: { type: 'MultiBinary', shape: [3] },
    members: [[0, 1, 1]],
    others: [[0, 1], [0, 1, 2], [true, false, true], 1],
    gymnasium: { type: 'MultiBinary', n: [3] },
  },
  'a flag': {
    space: FLAG,
    members: [true, false],
    others: [0, 1, null],
    gymnasium: { type: 'Discrete', n: 2, start: 0 },
  },
  'null or a text': {
    space: orNull(choice('a')),
    members: [null, 'a'],
    others: ['b', false],
    gymnasium: { type: 'OneOf', spaces: [{ type: 'Discrete', n: 1 }, { type: 'Text' }] },
  },
  'a pair': {
    space: tuple(FLAG, number(0, 1)),
    members: [[true, 0.5]],
    others: [[true], [true, 2], [1, 1], [true, 0, 0]],
    gymnasium: { type: 'Tuple', spaces: [{ type: 'Discrete' }, { type: 'Box', low: 0, high: 1 }] },
  },
  'a list': {
    space: list(cell(2, 2)),
    members: [
      [],
      [
        [0, 1],
        [1, 1],
      ],
    ],
    others: [[[0, 2]], null, {}],
    gymnasium: { type: 'Sequence', space: { type: 'MultiDiscrete' }, stack: false },
  },
  'an object': {
    space: dict({ a: FLAG, b: list(FLAG) }),
    members: [{ a: true, b: [] }],
    others: [{ a: true }, { a: true, b: [], c: 1 }, { a: 1, b: [] }, [], null],
    gymnasium: { type: 'Dict', spaces: { a: { type: 'Discrete' }, b: { type: 'Sequence' } } },
  },
  json: {
    space: { type: 'Json', schema: { type: 'object' } },
    members: [{}, { a: 1 }],
    others: [1, null],
    gymnasium: { type: 'Json' },
  },
};

for (const [name, { space, members, others, gymnasium }] of Object.entries(CASES)) {
  t.test(`${name}: membership and JSON Schema agree`, async t => {
    const schema = Compile(jsonSchema(space));
    for (const value of members) {
      t.equal(whyOutside(space, value), undefined, JSON.stringify(value));
      t.ok(schema.Check(value));
    }
    for (const value of others) {
      t.type(whyOutside(space, value), 'string', JSON.stringify(value));
      t.notOk(schema.Check(value));
    }
    t.match(gymnasiumSpace(space), gymnasium);
  });
}

t.test('a charset admits its characters and those of what was said', async t => {
  const space = text(9, 'ab√');
  t.equal(whyOutside(space, '√ab'), undefined);
  t.match(whyOutside(space, 'abc'), /the character "c", which is not in the charset/);
  t.equal(whyOutside(dict({ said: space }), { said: 'abc' }, 'xc'), undefined);
});

t.test('a fault names its path', async t => {
  t.equal(whyOutside(dict({ a: list(FLAG) }), { a: [true, 5] }), 'a: 1: 5 is not a boolean');
});

import t from 'tap';
import { compileGrammar } from '../../generation/grammar.ts';
import { TokenMasks } from './token-masks.ts';

const WIDTH = 6;
const FORBIDDEN = -1e9;
const grammars = new Map([
  [
    'answer',
    compileGrammar(
      'answer',
      {
        start: 0,
        states: [
          { tokens: [1, 2], next: [1, 1] },
          { tokens: [], next: [] },
        ],
      },
      WIDTH,
    ),
  ],
]);
const lossMask = Uint8Array.of(0, 1, 1);
const sequence = (...tokens: number[]) => ({ tokenIds: Int32Array.of(...tokens), lossMask });

/** Tokens that each row of the table allows. */
function rowsOf(masks: TokenMasks): number[][] {
  const table = new Float32Array(masks.count * WIDTH).fill(7);
  masks.fill(table);
  return Array.from({ length: masks.count }, (_, row) => {
    const own = [...table.subarray(row * WIDTH, (row + 1) * WIDTH)];
    t.ok(own.every(value => value === 0 || value === FORBIDDEN));
    return own.flatMap((value, token) => (value === 0 ? [token] : []));
  });
}

t.test('masks of states and of a grammar stand next to each other, equal ones once', async t => {
  const sequences = [
    {
      ...sequence(0, 2, 3),
      allowed: new Map([
        [1, Int32Array.of(2, 4)],
        [2, Int32Array.of(3)],
      ]),
    },
    {
      ...sequence(0, 4, 3),
      allowed: new Map([
        [1, Int32Array.of(2, 4)],
        [2, Int32Array.of(3)],
      ]),
    },
    { ...sequence(0, 1, 5), lossMask: Uint8Array.of(0, 1, 0), grammar: 'answer' },
    sequence(5, 5, 5),
  ];
  const masks = TokenMasks.of(sequences, grammars)!;
  t.equal(masks.count, 8);
  t.same(
    sequences.map((_, i) => [...masks.rowsOf(i)]),
    [
      [0, 1, 2],
      [0, 1, 2],
      [0, 3, 0],
      [0, 0, 0],
    ],
  );
  t.same(rowsOf(masks).slice(0, 4), [[0, 1, 2, 3, 4, 5], [2, 4], [3], [1, 2]]);
  t.equal(TokenMasks.of([sequence(1, 1, 1)], grammars), null);
});

t.test('the table has a power of two of rows, however many masks there are', async t => {
  const sequences = Array.from({ length: 20 }, (_, i) => ({
    ...sequence(0, 100 + i, 100 + i),
    allowed: new Map([[1, Int32Array.of(i, 100 + i)]]),
  }));
  t.equal(TokenMasks.of(sequences, grammars)!.count, 32);
});

t.test('a token that its mask forbids is named, unless nobody is trained on it', async t => {
  const wrong = { ...sequence(0, 5, 3), allowed: new Map([[1, Int32Array.of(2, 4)]]) };
  t.throws(() => TokenMasks.of([wrong], grammars), /token 5 at 1 is not among the 2 that were allowed/);
  const masks = TokenMasks.of([{ ...wrong, lossMask: Uint8Array.of(0, 0, 1) }], grammars)!;
  t.same([...masks.rowsOf(0)], [0, 0, 0]);
  t.throws(
    () => TokenMasks.of([{ ...sequence(0, 5, 3), grammar: 'answer' }], grammars),
    /token 5 at 1 is not allowed in state 0/,
  );
  t.throws(
    () => TokenMasks.of([{ ...sequence(0, 1, 1), grammar: 'x' }], grammars),
    /no grammar is named x; .*answer/,
  );
});

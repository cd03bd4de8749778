import t from 'tap';
import {
  allowedTokens,
  grammarBytes,
  SparseGrammarMatcher,
  sparseGrammar,
  type TokenGrammar,
  tokenGrammar,
} from './grammar.ts';

/** 1, or 1 1, then 3: an action that begins another. */
const grammar: TokenGrammar = {
  start: 0,
  states: [
    { tokens: [1], next: [1] },
    { tokens: [1, 3], next: [2, 3] },
    { tokens: [3], next: [3] },
    { tokens: [], next: [] },
  ],
};

t.test('a matcher follows the edges and ends after the last', async t => {
  const matcher = new SparseGrammarMatcher(sparseGrammar('g', grammar, 5), 5);
  const { start } = matcher;
  t.same([...matcher.allowedIn(start)], [0, 1, 0, 0, 0]);
  const one = matcher.stateAfter(start, 1);
  t.same([...matcher.allowedIn(one)], [0, 1, 0, 1, 0]);
  t.notOk(matcher.isFinal(one));
  t.ok(matcher.isFinal(matcher.stateAfter(one, 3)));
  t.ok(matcher.isFinal(matcher.stateAfter(matcher.stateAfter(one, 1), 3)));
  t.equal(matcher.stateAfter(one, 4), -1);
});

t.test('threads share its memory, and engines elsewhere get the grammar that it was made from', async t => {
  const sparse = sparseGrammar('g', grammar, 5);
  for (const array of [sparse.offsets, sparse.tokens, sparse.next])
    t.ok(array.buffer instanceof SharedArrayBuffer);
  t.equal(grammarBytes(sparse), 4 * (5 + 4 + 4));
  t.same(tokenGrammar(sparse), grammar);
});

t.test(
  'the tokens that could have been sampled are those of each state, and equal places share them',
  async t => {
    const sparse = sparseGrammar('g', grammar, 5);
    const long = allowedTokens(sparse, Int32Array.of(1, 1, 3));
    t.same(
      long.map(ids => [...ids]),
      [[1], [1, 3], [3]],
    );
    const short = allowedTokens(sparse, Int32Array.of(1, 3));
    t.equal(short[1], long[1]);
    t.throws(() => allowedTokens(sparse, Int32Array.of(1, 2)), /token 2 at 1 is not allowed in state 1/);
  },
);

t.test('a grammar that does not fit itself or the vocabulary is refused', async t => {
  const broken: [TokenGrammar, RegExp][] = [
    [{ ...grammar, start: 4 }, /grammar g: start 4 is not one of its 4 states/],
    [{ start: 0, states: [{ tokens: [1], next: [] }] }, /state 0 has 1 tokens and 0 next states/],
    [{ start: 0, states: [{ tokens: [5], next: [0] }] }, /state 0 allows token 5; the vocabulary has 5/],
    [{ start: 0, states: [{ tokens: [1], next: [1] }] }, /state 0 leads to 1, of 1 states/],
  ];
  for (const [wrong, message] of broken) t.throws(() => sparseGrammar('g', wrong, 5), message);
});

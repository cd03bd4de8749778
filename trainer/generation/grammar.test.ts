import t from 'tap';
import { compileGrammar, grammarStates, type TokenGrammar } from './grammar.ts';

const grammar: TokenGrammar = {
  start: 0,
  states: [
    { tokens: [1, 2], next: [0, 1] },
    { tokens: [], next: [] },
  ],
};

t.test('each masked run is a response from the start state', async t => {
  const compiled = compileGrammar('g', grammar, 4);
  const free = compiled.stateCount;
  const states = grammarStates(compiled, [3, 1, 1, 2, 3, 2], [0, 1, 1, 1, 0, 1], free);
  t.same([...states], [free, 0, 0, 0, free, 0]);
  t.same([0, 1].map(compiled.isFinal), [false, true]);
  t.throws(() => grammarStates(compiled, [3, 3], [0, 1], free), /token 3 at 1 is not allowed in state 0/);
});

t.test('a grammar that does not fit itself or the vocabulary is refused', async t => {
  const broken: [TokenGrammar, RegExp][] = [
    [{ ...grammar, start: 2 }, /grammar g: start 2 is not one of its 2 states/],
    [{ start: 0, states: [{ tokens: [1], next: [] }] }, /state 0 has 1 tokens and 0 next states/],
    [{ start: 0, states: [{ tokens: [4], next: [0] }] }, /state 0 allows token 4; the vocabulary has 4/],
    [{ start: 0, states: [{ tokens: [1], next: [1] }] }, /state 0 leads to 1, of 1 states/],
  ];
  for (const [wrong, message] of broken) t.throws(() => compileGrammar('g', wrong, 4), message);
});

import t from 'tap';
import { similar, suggestion } from './suggestion.ts';

t.test('similar words are those a few edits away, the nearest first', async t => {
  t.same(similar('frozenlak', ['Countdown', 'FrozenLakes', 'FrozenLake']), ['FrozenLake', 'FrozenLakes']);
  t.same(similar('sede', ['seed', 'env_id']), ['seed'], 'two letters swapped');
  t.same(similar('CartPole', ['Countdown', 'Sokoban', 'Lean']), []);
  t.same(similar('requests', ['request_key']), []);
  t.same(similar('ab', ['x']), [], 'nothing is left of it');
  t.same(similar('x'.repeat(100_000), ['x'.repeat(100_001)]), [], 'nobody misspells that');
  t.equal(suggestion('prset', ['preset']), ', did you mean `preset`?');
  t.equal(suggestion('prset', ['size']), '');
});

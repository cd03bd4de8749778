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

t.test('swapped letters are one edit, and the first letter decides between words as near', async t => {
  const recipes = ['arpo', 'brpo', 'dapo', 'dpo', 'gigpo', 'grpo', 'gspo', 'opo', 'ppo', 'rloo'];
  t.equal(suggestion('gpro', recipes), ', did you mean `grpo`?');
  t.equal(suggestion('GPRO', recipes), ', did you mean `grpo`?');
  t.equal(suggestion('gppo', recipes), ', did you mean `grpo`?', 'as near as `ppo` by edits');
  t.equal(suggestion('Sokboan', ['Sokoban', 'Sudoku']), ', did you mean `Sokoban`?');
});

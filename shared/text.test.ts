import { execFileSync } from 'node:child_process';
import t from 'tap';
import {
  counted,
  hasCredentials,
  printable,
  printableLines,
  shellWord,
  similar,
  suggestion,
  withoutCredentials,
} from './text.ts';

t.test('one is singular, every other number plural', async t => {
  t.same(
    [0, 1, 2].map(count => counted(count, 'session')),
    ['0 sessions', '1 session', '2 sessions'],
  );
  t.equal(counted(2, 'reply', 'replies'), '2 replies');
});

t.test('a shell reads every word unchanged', t => {
  for (const word of [`it's`, '$HOME `id` "x" \\', '{"a": "ü"}', '', 'a\nb', '!x']) {
    t.equal(String(execFileSync('sh', ['-c', `printf %s ${shellWord(word)}`])), word);
  }
  t.end();
});

t.test('untrusted text can neither control a terminal nor imitate other lines', async t => {
  t.equal(
    printable('ok\x1b]0;owned\x07\r\nragen: done\u2028\x9b2J\u202e'),
    'ok\\u001b]0;owned\\u0007\\u000d\\u000aragen: done\\u2028\\u009b2J\\u202e',
  );
  t.equal(printable('Größe 10 µm → 漢字 😀'), 'Größe 10 µm → 漢字 😀');
});

t.test('a text of several lines keeps them', async t => {
  t.equal(printableLines('one\n\ttwo\r\x1b[A'), 'one\n\ttwo\\u000d\\u001b[A');
});

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

t.test('user names and passwords of addresses are hidden, and nothing else', t => {
  const hidden: readonly (readonly [text: string, shown: string])[] = [
    ['http://user:pass@host:1/a', 'http://***@host:1/a'],
    ['url: https://token@host', 'url: https://***@host'],
    ['http://u:p@ss@host and http://v:w@host', 'http://***@host and http://***@host'],
  ];
  for (const [text, shown] of hidden) t.equal(withoutCredentials(text), shown);
  for (const text of [
    'http://host/a@b',
    'http://host?mail=a@b',
    '{"url":"http://host","mail":"a@b"}',
    'a@b http://host a@b',
  ])
    t.equal(withoutCredentials(text), text);
  t.ok(hasCredentials('http://u@host'));
  t.notOk(hasCredentials('http://host/u@v'));
  t.end();
});

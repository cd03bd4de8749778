import { execFileSync } from 'node:child_process';
import t from 'tap';
import { shellWord } from './shell-word.ts';

t.test('a shell reads every word unchanged', t => {
  for (const word of [`it's`, '$HOME `id` "x" \\', '{"a": "ü"}', '', 'a\nb', '!x']) {
    t.equal(String(execFileSync('sh', ['-c', `printf %s ${shellWord(word)}`])), word);
  }
  t.end();
});

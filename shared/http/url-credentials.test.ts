import t from 'tap';
import { hasCredentials, withoutCredentials } from './url-credentials.ts';

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

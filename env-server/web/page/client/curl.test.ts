import { execFileSync } from 'node:child_process';
import t from 'tap';
import { curlLine, quote } from './curl.ts';

t.test('a line has what the request has', t => {
  const url = 'http://127.0.0.1:8080/v1/sessions';
  t.equal(curlLine({ method: 'GET', url }), `curl -s ${url}`);
  t.equal(curlLine({ method: 'POST', url }), `curl -s -X POST ${url}`);
  t.equal(
    curlLine({ method: 'POST', url, body: '{"env_id":"A-v0"}', authorized: true }),
    [
      `curl -s ${url} \\`,
      '  -H "authorization: Bearer $RAGEN_TOKEN" \\',
      "  -H 'content-type: application/json' \\",
      `  -d '{"env_id":"A-v0"}'`,
    ].join('\n'),
  );
  t.equal(curlLine({ method: 'GET', url: `${url}?limit=2` }), `curl -s '${url}?limit=2'`);
  t.end();
});

t.test('a shell reads every word as it was', t => {
  for (const word of [`it's`, '$HOME `id` "x" \\', '{"a": "ü"}', '', 'a\nb', '!x']) {
    t.equal(String(execFileSync('sh', ['-c', `printf %s ${quote(word)}`])), word);
  }
  t.end();
});

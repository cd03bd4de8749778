import t from 'tap';
import { curlLine } from './client.ts';

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

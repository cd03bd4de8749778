import t from 'tap';
import { testApp } from '../test/app.test-data.ts';
import { hashToken } from './transports/access/auth.ts';

const tokens = JSON.stringify([{ name: 'someone', sha256: hashToken('secret'), scopes: ['play'] }]);

t.test('the page and all it loads come without a token, and hold to a strict policy', async t => {
  const { ask } = await testApp(t, { tokens });
  const page = await ask('GET', '/');
  t.equal(page.status, 200);
  t.equal(page.headers['content-type'], 'text/html; charset=utf-8');
  t.match(
    page.headers['content-security-policy'],
    /^default-src 'self';style-src 'self';img-src 'self' data: blob:;/,
  );
  t.notMatch(
    page.text,
    /<script(?![^>]*\bsrc=)|\bstyle=|\bon\w+=|https?:/,
    'nothing inline, nothing from elsewhere',
  );
  const seen = new Set<string>();
  const load = async (url: string): Promise<void> => {
    if (seen.has(url)) return;
    seen.add(url);
    const { status, text, headers } = await ask('GET', url);
    t.equal(status, 200, url);
    if (!String(headers['content-type']).startsWith('text/javascript')) return;
    t.notMatch(text, /\bimport\s+type\b/);
    for (const [, target] of text.matchAll(/^(?:import|export)\b[^;]*?from '([^']+)';/gm)) {
      await load(new URL(target, `http://server${url}`).pathname);
    }
  };
  for (const [, target] of page.text.matchAll(/(?:src|href)="(assets\/[^"]+)"/g)) await load(`/${target}`);
  t.ok(seen.has('/assets/libraries/preact.js'), 'imports were followed');
  const bundle = await ask('GET', '/assets/bundles/site/playground/main.ts');
  t.match(bundle.text, '$["site/playground/play/play-view.ts"] ??=', 'modules are in the bundle');
  const map = await ask('GET', '/assets/bundles/site/playground/main.ts.map');
  t.match(JSON.parse(map.text).sources, { 0: /\.ts$/ });
  t.equal((await ask('GET', '/v1/envs')).status, 401);
});

t.test('a browser that has a file already is not sent it again', async t => {
  const { ask } = await testApp(t);
  const { headers } = await ask('GET', '/assets/site/styles/base.css');
  t.equal(headers['cache-control'], 'no-cache');
  const again = await ask('GET', '/assets/site/styles/base.css', undefined, {
    'if-none-match': String(headers.etag),
  });
  t.same([again.status, again.text], [304, '']);
});

t.test('the page’s routes hand out no other files', async t => {
  const { ask } = await testApp(t);
  for (const path of [
    'env-server/main.ts',
    'site/server/routes.ts',
    'site/playground/client/code-lines.test.ts',
    'site/playground/../server/routes.ts',
    'bundles/site/server/routes.ts',
    'bundles/site/playground/../server/routes.ts',
    'bundles/site/playground/play/play-view.ts',
    'bundles/site/playground/play/play-view.ts.map',
    'site/playground/..%2fserver%2froutes.ts',
    'package.json',
    '',
  ]) {
    t.match(await ask('GET', `/assets/${path}`), { status: 404, body: { code: 'not_found' } }, path);
  }
});

import { rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { transform } from 'esbuild';
import t from 'tap';
import { Assets, LOOK, RUN_PAGES } from './assets.ts';
import { withoutComments } from './bundler.ts';

t.test('scripts come without types, at the same lines and columns', async t => {
  const asset = await new Assets(['site/components']).find('site/components/store.ts');
  t.ok(asset);
  t.equal(asset!.contentType, 'text/javascript; charset=utf-8');
  t.notMatch(String(asset!.body), /Store<State, Action>/);
  const line = String(asset!.body)
    .split('\n')
    .findIndex(text => text.startsWith('export function useEvent(target'));
  const { readFileSync } = await import('node:fs');
  const source = readFileSync(new URL('../components/store.ts', import.meta.url), 'utf8').split('\n');
  t.match(source[line], /^export function useEvent\(target: EventTarget/);
  t.match(asset!.etag, /^"[\w-]{43}"$/);
});

t.test('sheets name existing fonts; browsers cache them', async t => {
  const assets = new Assets(['site/styles']);
  const sheet = await assets.find('site/styles/base.css');
  const names = [...String(sheet!.body).matchAll(/url\("(.+?)"\)/g)].map(([, name]) => name);
  t.equal(names.length, 2);
  const page = String((await new Assets(RUN_PAGES).find('site/runs/runs.css'))!.body);
  const fromPage = [...page.matchAll(/url\("(.+?)"\)/g)].map(([, name]) => join('site/runs', name));
  t.same(
    fromPage,
    names.map(name => join('site/styles', name)),
    'a sheet that is imported still names its own files',
  );
  t.equal(sheet!.cacheControl, 'no-cache');
  for (const name of names) {
    const font = (await assets.find(`site/styles/${name}`))!;
    t.match(font, { contentType: 'font/woff2', cacheControl: /max-age=31536000, immutable/ }, name);
    t.equal((font.body as Buffer).toString('latin1', 0, 4), 'wOF2');
    t.ok((font.body as Buffer).length < 80_000, `${name} has ${font.body.length} bytes`);
  }
});

t.test('comments that bundles leave out are comments in every script', async t => {
  const assets = new Assets([...RUN_PAGES, ...LOOK, 'site/playground', 'site/reference']);
  const packed = async (code: string) =>
    (await transform(code, { minifyWhitespace: true, legalComments: 'none' })).code;
  let removed = 0;
  for (const path of assets.paths.filter(name => name.endsWith('.ts') && !name.startsWith('bundles/'))) {
    const code = String((await assets.find(path))!.body);
    const rest = withoutComments(code);
    removed += code.length - rest.length;
    t.equal(rest.split('\n').length, code.split('\n').length, `${path} keeps its lines`);
    t.equal(await packed(rest), await packed(code), `${path} keeps its meaning`);
  }
  t.ok(removed > 20_000, `${removed} characters less`);
});

t.test('only the page’s own files are handed out', t => {
  const assets = new Assets(['site/styles', 'site/server', 'shared/run-folder/episode-filter.ts']);
  t.ok(assets.find('site/styles/base.css'));
  t.ok(assets.find('shared/run-folder/episode-filter.ts'));
  for (const path of [
    'site/server/assets.test.ts',
    'site/server/README.md',
    'shared/run-folder/is-alive.ts',
    'package.json',
    'site/../package.json',
    'site/styles/../../package.json',
    'trainer/main.ts',
    '',
  ]) {
    t.equal(assets.find(path), undefined, path);
  }
  t.end();
});

t.test('libraries come from node_modules, and are imported by relative paths', async t => {
  const assets = new Assets(['site/components']);
  const page = await assets.find('site/components/html.ts');
  t.match(String(page!.body), /from '\.\.\/\.\.\/libraries\/htm\.js'/);
  t.match(String(page!.body), /from '\.\.\/\.\.\/libraries\/preact\.js'/);
  for (const path of assets.paths.filter(name => name.startsWith('libraries/'))) {
    const library = await assets.find(path);
    t.equal(library!.contentType, 'text/javascript; charset=utf-8');
    const named = /(?:^|[;}])\s*(?:import|export)\b[^;"']*\bfrom\s*["'](?![./])/m;
    t.notMatch(String(library!.body), named, `${path} imports nothing by name`);
  }
  t.equal(assets.find('libraries/../package.json'), undefined);
  t.equal(assets.find('libraries/undici.js'), undefined);
});

t.test('a file that could not be read once is read again', async t => {
  const folder = t.testdir({ 'mark.svg': '<svg/>' });
  const name = relative(join(import.meta.dirname, '../..'), folder);
  const assets = new Assets([name]);
  rmSync(join(folder, 'mark.svg'));
  await t.rejects(assets.find(`${name}/mark.svg`)!, { code: 'ENOENT' });
  writeFileSync(join(folder, 'mark.svg'), '<svg/>');
  t.equal(String((await assets.find(`${name}/mark.svg`))!.body), '<svg/>');
});

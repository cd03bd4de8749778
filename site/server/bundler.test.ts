import { mkdirSync, writeFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t, { type Test } from 'tap';
import { BUNDLES, Bundler } from './bundler.ts';

type Files = { readonly [path: string]: string };

const bundlerOf = (files: Files, entries: readonly string[]) =>
  new Bundler(async path => files[path], entries);

/** A folder as a browser sees it: bundles next to the modules. `paths` are the bundles' entries. */
async function serve(t: Test, files: Files, entries: readonly string[], paths: readonly string[]) {
  const folder = t.testdir({ 'package.json': '{"type":"module"}' });
  const bundler = bundlerOf(files, entries);
  const write = (path: string, text: string) => {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  };
  for (const [path, code] of Object.entries(files)) write(path, code);
  for (const path of paths) write(BUNDLES + path, (await bundler.bundle(path))!.code);
  return (path: string) => import(pathToFileURL(join(folder, path)).href);
}

const seen: string[] = [];
Object.assign(globalThis, { seen });

t.test(
  'a bundle evaluates its modules once, in order, and shares them with those that come later',
  async t => {
    const files = {
      'libraries/box.js': 'seen.push("box");export{n as box,n as default};const n={of:"library"};',
      'a/main.ts': `import box, { box as same } from '../libraries/box.js';
import * as all from './names.ts';
import {
  count,
  Counter as Tally,
} from './names.ts';
import './effect.ts';
const text = 'import {} from';
seen.push(['main', box === same, all.count(), text.length > 6, new Tally().n].join());
globalThis.later = () => import('./later/view.ts');
globalThis.made = () => import('./made.mjs');
globalThis.address = import.meta.url;`,
      'a/made.mjs': 'const a="made";export{a as text};',
      'a/names.ts': `seen.push('names');
export const state = { n: 0 };
export function count() {
  return ++state.n;
}
export class Counter {
  n = 5;
}
export async function wait() {}`,
      'a/effect.ts': `seen.push('effect');`,
      'a/later/view.ts': `import { state } from '../names.ts';
import { only } from './only.ts';
export const view = () => [state.n, only];
export const title = 'view';`,
      'a/later/only.ts': `export const only = 'only';`,
    };
    const load = await serve(t, files, ['a/main.ts'], ['a/main.ts', 'a/later/view.ts']);
    const globals = globalThis as unknown as {
      later: () => Promise<{ view: () => unknown[]; title: string }>;
      made: () => Promise<{ text: string }>;
      address: string;
    };
    await load(`${BUNDLES}a/main.ts`);
    t.same(seen, ['box', 'names', 'effect', 'main,true,1,true,5']);
    t.match(globals.address, /\/a\/main\.ts$/);
    t.notMatch(globals.address, BUNDLES);
    const { view, title } = await globals.later();
    t.same([view(), title], [[1, 'only'], 'view']);
    t.equal(seen.length, 4, 'nothing was evaluated again');
    t.match(await globals.made(), { text: 'made' }, 'what is a bundle already is imported as it is');
    const { code } = (await bundlerOf(files, ['a/main.ts']).bundle('a/later/view.ts'))!;
    t.notMatch(code, 'class Counter', 'what the page has is left out');
  },
);

t.test('a source map leads from each line of a bundle to that of its module', async t => {
  const files = {
    'b/main.ts': `import { one } from './one.ts';\n\nthrow new Error(one);`,
    'b/one.ts': `/* first */\nexport const one =\n  'one';`,
  };
  const { code, map } = (await bundlerOf(files, ['b/main.ts']).bundle('b/main.ts'))!;
  const found = new SourceMap(JSON.parse(map));
  for (const [text, source, line] of [
    ["  'one'", '../../b/one.ts', 2],
    ['throw new', '../../b/main.ts', 2],
    ['const { one }', '../../b/main.ts', 0],
  ] as const) {
    const at = code.split('\n').findIndex(written => written.includes(text));
    t.match(found.findEntry(at, 0), { originalSource: source, originalLine: line }, text);
  }
});

t.test('the libraries of a later bundle are requested with it', async t => {
  const files = {
    'libraries/one.js': 'export default 1;',
    'libraries/two.js': 'export default 2;',
    'e/main.ts': `import one from '../libraries/one.js';
globalThis.plot = async () => (await import('./plot.ts')).plot;
globalThis.plain = () => import('./plain.ts');`,
    'e/plot.ts': `import one from '../libraries/one.js';
import two from '../libraries/two.js';
// a comment
export const plot = [one, two, '// no comment'];`,
    'e/plain.ts': `import one from '../libraries/one.js';\nexport const plain = one;`,
  };
  const load = await serve(t, files, ['e/main.ts'], ['e/main.ts', 'e/plot.ts', 'e/plain.ts']);
  await load(`${BUNDLES}e/main.ts`);
  const globals = globalThis as unknown as {
    plot: () => Promise<unknown>;
    plain: () => Promise<{ plain: number }>;
  };
  t.same(await globals.plot(), [1, 2, '// no comment']);
  t.equal((await globals.plain()).plain, 1);
  const bundler = bundlerOf(files, ['e/main.ts']);
  const { code } = (await bundler.bundle('e/main.ts'))!;
  t.match(code, /import\('\.\/plot\.ts'\),import\('\.\.\/\.\.\/libraries\/two\.js'\)/);
  t.notMatch(code, /import\('[./]*libraries\/one\.js'\)/, 'what the page has is not requested again');
  t.notMatch((await bundler.bundle('e/plot.ts'))!.code, 'a comment');
});

t.test('only scripts that pages load are bundles', async t => {
  const files = { 'c/main.ts': `import './part.ts';`, 'c/part.ts': 'seen.push("part");' };
  const bundler = bundlerOf(files, ['c/main.ts']);
  t.equal(await bundler.bundle('c/part.ts'), undefined);
  t.equal(await bundler.bundle('c/other.ts'), undefined);
});

t.test('an import that a bundle cannot have is named', async t => {
  for (const [code, message] of [
    [`import { gone } from './gone.ts';`, /d\/gone\.ts is imported, but browsers may not load it/],
    [`import './main.ts';`, /no circles, but d\/main\.ts imports d\/main\.ts/],
    ['export let x = 1;', /d\/main\.ts: a bundle cannot have "export let x = 1;"/],
    ['export default 1;', /a bundle cannot have "export default 1;"/],
    [`export * from './x.ts';`, /a bundle cannot have/],
  ] as const) {
    await t.rejects(bundlerOf({ 'd/main.ts': code }, ['d/main.ts']).bundle('d/main.ts'), { message }, code);
  }
});

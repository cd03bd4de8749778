import { globSync, readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';

const ROOT = new URL('../', import.meta.url);
/** Most files that a reader follows from the collector to the gradient. */
const MAX_FILES = 18;
/** Call the first files: the iteration, and the opened run that gives its sources the collector. */
const STARTS = ['training/iteration/iteration.ts', 'training/setup/run-context.ts'];

interface Stop {
  /** From the trainer's folder. */
  readonly file: string;
  readonly name: string;
}

const page = readFileSync(new URL('docs/explanation/architecture.md', ROOT), 'utf8');
const section = page.split(/^## /m).find(part => part.startsWith('From a trajectory to its gradient'))!;
const path: readonly Stop[] = [...section.matchAll(/^\| `([^`]+\.ts)` +\| `([^`]+)`/gm)].map(
  ([, file, name]) => ({
    file,
    name,
  }),
);
const code = (file: string) =>
  readFileSync(new URL(`trainer/${file}`, ROOT), 'utf8').replaceAll(/\/\*\*[\s\S]*?\*\//g, '');

/** Files of the trainer that this one names: imports, and the files that threads start with. */
function namesOf(file: string, kind: 'values' | 'all'): string[] {
  const text = code(file);
  const imported = [...text.matchAll(/^import (type )?([\s\S]*?) from '(\.[^']+)';/gm)].filter(
    ([, type, names]) =>
      kind === 'all' ||
      (type === undefined && [...names.matchAll(/[{,]\s*(\w+)/g)].some(([, first]) => first !== 'type')),
  );
  const threads = text.matchAll(/new URL\((\s*)(\s*)'(\.[^']+\.ts)', import\.meta\.url\)/g);
  return [...imported, ...threads].map(([, , , from]) => posix.join(posix.dirname(file), from));
}

/**
 * True if a file hands over to the next: it names that file, the table that holds it, or the interface that it
 * implements, and calls its function.
 */
function handsOver(file: string, next: Stop): boolean {
  const known = namesOf(file, 'all');
  const between = known.filter(
    other => posix.dirname(other) === posix.dirname(next.file) && /(registry|policy)\.ts$/.test(other),
  );
  const knows =
    known.includes(next.file) ||
    between.some(
      other => namesOf(other, 'all').includes(next.file) || namesOf(next.file, 'all').includes(other),
    );
  return knows && new RegExp(`\\b${next.name}\\(|new Worker\\(`).test(code(file));
}

t.test('a trajectory passes 18 files from the collector to its gradient, each once', async t => {
  t.equal(path[0].file, 'rollout/collection/collector.ts');
  t.equal(path.at(-1)!.file, 'tensor/graph/gradients.ts');
  t.ok(path.length <= MAX_FILES, `${path.length} files`);
  t.equal(new Set(path.map(({ file }) => file)).size, path.length);
});

t.test('each file of the way is reached from an earlier one, or from the iteration', async t => {
  for (const [i, stop] of path.entries()) {
    const declared = new RegExp(`(function\\*? |^  (async |static )*)${stop.name}[(<]`, 'm');
    t.match(code(stop.file), declared, `${stop.file} has ${stop.name}`);
    const earlier = [...STARTS, ...path.slice(0, i).map(({ file }) => file)];
    t.ok(
      earlier.some(file => handsOver(file, stop)),
      `${stop.file} is reached`,
    );
  }
});

t.test('no file of the way turns back to an earlier one', async t => {
  const files = path.map(({ file }) => file);
  const back = files.flatMap((file, i) =>
    namesOf(file, 'values')
      .filter(target => files.slice(0, i).includes(target))
      .map(target => `${file} uses ${target}`),
  );
  t.same(back, []);
});

t.test('a folder names only files that are in it, or by their path in a program', async t => {
  const cwd = fileURLToPath(ROOT);
  const folders = '{bench,docs,env-server,install,openapi,shared,site,test,trainer}/**';
  const exclude = ['**/node_modules/**'];
  const files = globSync(`${folders}/*.ts`, { cwd, exclude });
  for (const page of globSync(`${folders}/README.md`, { cwd, exclude })) {
    const folder = `${posix.dirname(page)}/`;
    for (const [, name] of readFileSync(new URL(page, ROOT), 'utf8').matchAll(/`([\w./-]+\.ts)`/g)) {
      const path = posix.normalize(name.startsWith('..') ? folder + name : name);
      const within = path.includes('/') ? '' : folder;
      const found = files.some(file => `/${file}`.endsWith(`/${path}`) && file.startsWith(within));
      t.ok(found, `${page}: ${name}`);
    }
  }
});

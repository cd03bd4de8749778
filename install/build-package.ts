/**
 * Writes dist/, which the package holds instead of TypeScript, because Node strips no types below node_modules: JavaScript
 * and declarations at the paths of their sources, together with the files that programs read.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { withoutTypes } from '../site/server/assets.ts';

const ROOT = join(import.meta.dirname, '..');
const DIST = join(ROOT, 'dist');
/** Folders of files that programs read in place. */
const FOLDERS = ['configs', 'env-server', 'shared', 'site', 'trainer'];
/** Scripts of pages: their types are removed here, so that a first visit does not wait for it. */
const PAGES =
  /^(site\/(?!server\/)|shared\/(run-folder\/|scheduling\/serial-queue|json|step-info|text)).*(?<!\.test(-data)?)\.ts$/;
const NOT_READ = /\.(ts|md)$|\.test-data\./;
/** Files that a program names by URL, which the compiler leaves as they are. */
const URL_OF_SOURCE = /(new URL\('[^']+)\.ts(', import\.meta\.url\))/g;

const filesBelow = (folder: string): string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile() && !entry.parentPath.includes('__pycache__'))
    .map(entry => join(entry.parentPath, entry.name).slice(ROOT.length + 1));

rmSync(DIST, { recursive: true, force: true });
// The compiler's program itself: its launcher does not load where a test runner has put module loaders before it.
const launcher = join(ROOT, 'node_modules/typescript-native/lib/getExePath.js');
const { default: compilerPath }: { default: () => string } = await import(pathToFileURL(launcher).href);
// Several checkers would each work out the types that files have in common: nearly twice the processor time.
execFileSync(compilerPath(), ['-p', 'tsconfig.package.json', '--checkers', '1'], {
  cwd: ROOT,
  stdio: 'inherit',
});
for (const file of filesBelow('dist').filter(name => name.endsWith('.js'))) {
  const code = readFileSync(join(ROOT, file), 'utf8');
  const named = code.replace(URL_OF_SOURCE, '$1.js$2');
  if (named !== code) writeFileSync(join(ROOT, file), named);
}
for (const file of ['openapi/schema.d.ts', 'package.json', ...FOLDERS.flatMap(filesBelow)]) {
  if (PAGES.test(file)) {
    const script = await withoutTypes(readFileSync(join(ROOT, file), 'utf8'), file);
    mkdirSync(dirname(join(DIST, file)), { recursive: true });
    // A compiler that reads a program of the package would take the script for its source.
    writeFileSync(join(DIST, file), `// @ts-nocheck\n${script}`);
  } else if (!NOT_READ.test(file) || file.endsWith('.d.ts')) cpSync(join(ROOT, file), join(DIST, file));
}

import { execFileSync } from 'node:child_process';
import { posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { importCircles, importsOf } from '../test/import-graph.test-data.ts';

/**
 * The size and shape of the code at some commits, as the table of docs/log.md:
 * `npm run bench:structure -- 09bca81 HEAD`. Generated files and golden values do not count.
 */
const ROOT = fileURLToPath(new URL('../', import.meta.url));
const GENERATED = /^(openapi\/schema\.d\.ts|test\/golden\/)/;
const TEST = /\.test(-data)?\.ts$/;
const MAX_BLOB_BYTES = 256 * 1024 * 1024;
const LONG_FUNCTION_LINES = 60;
const MAX_FUNCTION_LINES = 80;
const MAX_PARAMETERS = 5;
const MAX_FILE_LINES = 400;

interface Structure {
  readonly revision: string;
  readonly files: number;
  readonly codeLines: number;
  readonly testLines: number;
  readonly longFiles: number;
  readonly longFunctions: number;
  readonly tooLongFunctions: number;
  readonly manyParameters: number;
  readonly circles: string;
  readonly largestFolder: string;
}

function git(args: readonly string[], input?: string): Buffer {
  return execFileSync('git', args, { cwd: ROOT, input, maxBuffer: MAX_BLOB_BYTES });
}

/** TypeScript files of a commit, by path. */
function textsAt(revision: string): Map<string, string> {
  const paths = git(['ls-tree', '-r', '--name-only', revision])
    .toString()
    .split('\n')
    .filter(path => path.endsWith('.ts') && !GENERATED.test(path));
  const blobs = git(['cat-file', '--batch'], paths.map(path => `${revision}:${path}\n`).join(''));
  const texts = new Map<string, string>();
  let at = 0;
  for (const path of paths) {
    const end = blobs.indexOf('\n', at);
    const size = Number(blobs.toString('latin1', at, end).split(' ')[2]);
    texts.set(path, blobs.toString('utf8', end + 1, end + 1 + size));
    at = end + 1 + size + 1;
  }
  return texts;
}

/** Lines and positional parameters of each function with a body. */
function functionsOf(path: string, text: string): { lines: number; parameters: number }[] {
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, false);
  const found: { lines: number; parameters: number }[] = [];
  const lineOf = (position: number) => source.getLineAndCharacterOfPosition(position).line;
  const visit = (node: ts.Node): void => {
    if (ts.isFunctionLike(node) && 'body' in node && node.body) {
      const lines = lineOf(node.end) - lineOf(node.getStart(source)) + 1;
      found.push({ lines, parameters: node.parameters.length });
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/** The folder with the most files of any kind directly in it. */
function largestFolder(revision: string): string {
  const counts = new Map<string, number>();
  for (const path of git(['ls-tree', '-r', '--name-only', revision]).toString().split('\n')) {
    if (path === '' || GENERATED.test(path)) continue;
    const folder = posix.dirname(path);
    counts.set(folder, (counts.get(folder) ?? 0) + 1);
  }
  const [[folder, count]] = [...counts].sort((a, b) => b[1] - a[1]);
  return `${count} (${folder})`;
}

function structureAt(revision: string): Structure {
  const texts = textsAt(revision);
  const lines = (wanted: boolean) =>
    [...texts].reduce(
      (sum, [path, text]) => (TEST.test(path) === wanted ? sum + text.split('\n').length - 1 : sum),
      0,
    );
  const code = [...texts].filter(([path]) => !TEST.test(path));
  const functions = code.flatMap(([path, text]) => functionsOf(path, text));
  const circles = importCircles(importsOf(texts));
  const largest = Math.max(0, ...circles.map(({ length }) => length));
  return {
    revision,
    files: texts.size,
    codeLines: lines(false),
    testLines: lines(true),
    longFiles: code.filter(([, text]) => text.split('\n').length - 1 > MAX_FILE_LINES).length,
    longFunctions: functions.filter(one => one.lines > LONG_FUNCTION_LINES).length,
    tooLongFunctions: functions.filter(one => one.lines > MAX_FUNCTION_LINES).length,
    manyParameters: functions.filter(one => one.parameters > MAX_PARAMETERS).length,
    circles: circles.length === 0 ? '0' : `${circles.length} (largest: ${largest} files)`,
    largestFolder: largestFolder(revision),
  };
}

const revisions = process.argv.length > 2 ? process.argv.slice(2) : ['HEAD'];
const structures = revisions.map(structureAt);
const row = (title: string, cell: (structure: Structure) => string | number): string =>
  `| ${[title, ...structures.map(structure => cell(structure).toLocaleString('en-US'))].join(' | ')} |`;

console.log(
  [
    row('', ({ revision }) => revision),
    row('---', () => '---:'),
    row('TypeScript files', ({ files }) => files),
    row('lines of code', ({ codeLines }) => codeLines),
    row('lines of tests and their data', ({ testLines }) => testLines),
    row(`files of code over ${MAX_FILE_LINES} lines`, ({ longFiles }) => longFiles),
    row(`functions over ${LONG_FUNCTION_LINES} lines`, ({ longFunctions }) => longFunctions),
    row(`functions over ${MAX_FUNCTION_LINES} lines`, ({ tooLongFunctions }) => tooLongFunctions),
    row(
      `functions with over ${MAX_PARAMETERS} positional parameters`,
      ({ manyParameters }) => manyParameters,
    ),
    row('import circles, types included', ({ circles }) => circles),
    row('files in the largest folder', structure => structure.largestFolder),
  ].join('\n'),
);

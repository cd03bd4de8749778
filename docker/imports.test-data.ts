import { readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import ts from 'typescript';
import { LIBRARIES } from '../site/server/assets.ts';
import { ROOT } from './images.test-data.ts';

/** Modules that a file loads when it runs, without imports of types. */
function importsOf(file: string): string[] {
  const source = ts.createSourceFile(file, readFileSync(`${ROOT}${file}`, 'utf8'), ts.ScriptTarget.Latest);
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node) && !isTypeOnly(node.importClause))
      found.push(textOf(node.moduleSpecifier));
    if (ts.isExportDeclaration(node) && node.moduleSpecifier && !node.isTypeOnly) {
      found.push(textOf(node.moduleSpecifier));
    }
    if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      found.push(textOf(node.arguments[0]));
    }
    // createRequire(import.meta.url)('package'), for packages that are no modules.
    if (
      ts.isCallExpression(node) &&
      ts.isCallExpression(node.expression) &&
      node.expression.expression.getText(source) === 'createRequire'
    ) {
      found.push(textOf(node.arguments[0]));
    }
    // new URL('./worker.ts', import.meta.url), for workers.
    if (
      ts.isNewExpression(node) &&
      node.expression.getText(source) === 'URL' &&
      node.arguments?.length === 2
    ) {
      const [path] = node.arguments;
      if (ts.isStringLiteral(path) && path.text.endsWith('.ts')) found.push(path.text);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

const textOf = (node: ts.Expression): string => (ts.isStringLiteral(node) ? node.text : '');

function isTypeOnly(clause: ts.ImportClause | undefined): boolean {
  if (!clause) return false;
  if (clause.phaseModifier === ts.SyntaxKind.TypeKeyword) return true;
  const { namedBindings, name } = clause;
  if (name || !namedBindings || !ts.isNamedImports(namedBindings)) return false;
  return namedBindings.elements.length > 0 && namedBindings.elements.every(element => element.isTypeOnly);
}

/** All that a program loads: files of the repository, and packages. */
export function reachable(entry: string): { readonly files: Set<string>; readonly packages: Set<string> } {
  const files = new Set<string>();
  const packages = new Set<string>();
  const waiting = [entry];
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
    if (files.has(file)) continue;
    files.add(file);
    for (const path of importsOf(file)) {
      if (path.startsWith('.')) waiting.push(normalize(join(dirname(file), path)));
      else if (path !== '' && !path.startsWith('node:')) packages.add(packageOf(path));
    }
  }
  // Pages load libraries in the browser, which gets them from node_modules.
  if (files.has('site/server/assets.ts')) for (const name of LIBRARIES.keys()) packages.add(packageOf(name));
  return { files, packages };
}

/** The package of a module's name: `a/b` → `a`, `@a/b/c` → `@a/b`. */
const packageOf = (name: string): string =>
  name
    .split('/')
    .slice(0, name.startsWith('@') ? 2 : 1)
    .join('/');

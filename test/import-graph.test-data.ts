import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

/** Imports of each file within the repository, types included; paths from the repository's root. */
export type ImportGraph = ReadonlyMap<string, readonly string[]>;

const ROOT = fileURLToPath(new URL('../', import.meta.url));

/** Every TypeScript file that git knows or does not ignore, from the repository's root. */
export function sourceFiles(): string[] {
  return execFileSync('git', ['ls-files', '-co', '--exclude-standard', '*.ts'], {
    cwd: ROOT,
    encoding: 'utf8',
  })
    .split('\n')
    .filter(file => file !== '' && existsSync(ROOT + file));
}

/** Reads the imports of every source file. */
export function readImports(): ImportGraph {
  return importsOf(new Map(sourceFiles().map(file => [file, readFileSync(ROOT + file, 'utf8')])));
}

/** @param texts of TypeScript files, by path from the repository's root */
function importsOf(texts: ReadonlyMap<string, string>): ImportGraph {
  return new Map(
    [...texts].map(([file, text]) => {
      const { importedFiles } = ts.preProcessFile(text, true, true);
      const targets = importedFiles
        .filter(({ fileName }) => fileName.startsWith('.'))
        .map(({ fileName }) => posix.join(posix.dirname(file), fileName))
        .filter(target => texts.has(target));
      return [file, [...new Set(targets)]];
    }),
  );
}

/**
 * Files that import each other in circles: the strongly connected components of more than one file (Tarjan, 1972), each sorted.
 */
export function importCircles(graph: ImportGraph): string[][] {
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  const stack: string[] = [];
  const waiting = new Set<string>();
  const circles: string[][] = [];
  const visit = (file: string): void => {
    order.set(file, order.size);
    lowest.set(file, order.get(file)!);
    stack.push(file);
    waiting.add(file);
    for (const target of graph.get(file) ?? []) {
      if (!order.has(target)) visit(target);
      if (waiting.has(target)) lowest.set(file, Math.min(lowest.get(file)!, lowest.get(target)!));
    }
    if (lowest.get(file) !== order.get(file)) return;
    const circle = stack.splice(stack.indexOf(file));
    for (const member of circle) waiting.delete(member);
    if (circle.length > 1 || graph.get(file)?.includes(file)) circles.push(circle.sort());
  };
  for (const file of graph.keys()) if (!order.has(file)) visit(file);
  return circles;
}

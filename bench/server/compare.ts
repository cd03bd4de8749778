import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { median } from '../median.ts';
import { type LoadCase, type LoadRow, MAIN, play, serverCases } from './cases.ts';

/** How to compare. */
export interface Comparison {
  readonly seconds: number;
  readonly rounds: number;
  /** Part of the names of the cases that are measured. */
  readonly only: string;
}

/**
 * Processor time of a step on the server of another checkout and on this one, without and with `--data`. The two take
 * turns, case by case, so that both meet the same machine; the user time counts, as it depends least on other programs.
 * @param folder the other checkout, with its packages installed
 * @returns a table
 */
export async function compare(folder: string, { seconds, rounds, only }: Comparison): Promise<string> {
  const data = mkdtempSync(join(tmpdir(), 'ragen-bench-'));
  process.on('exit', () => rmSync(data, { recursive: true, force: true }));
  const other = resolve(folder, 'env-server/main.ts');
  const pairs: (readonly [string, readonly [LoadCase, LoadCase]])[] = [];
  for (const kept of [false, true]) {
    const flags = (name: string) => (kept ? ['--data', join(data, name)] : []);
    const before = await serverCases(other, flags('before'));
    const after = await serverCases(MAIN, flags('after'));
    for (const [i, one] of before.entries()) {
      const name = `${one.name}${kept ? ', --data' : ''}`;
      if (name.includes(only)) pairs.push([name, [one, after[i]]]);
    }
  }
  const rows = new Map(pairs.map(([name]) => [name, { before: [] as LoadRow[], after: [] as LoadRow[] }]));
  for (let round = 0; round < rounds; round++) {
    for (const [name, [before, after]] of pairs) {
      rows.get(name)!.before.push(await play(before, seconds));
      rows.get(name)!.after.push(await play(after, seconds));
    }
  }
  return tableOf(rows);
}

function tableOf(
  rows: ReadonlyMap<string, { readonly before: LoadRow[]; readonly after: LoadRow[] }>,
): string {
  const lines = [
    '| user CPU µs a step | other, least | this, least | ratio | other, median | this, median | ratio |',
    '|---|---|---|---|---|---|---|',
  ];
  for (const [name, { before, after }] of rows) {
    const columns = [(values: number[]) => Math.min(...values), median].flatMap(of => {
      const [a, b] = [before, after].map(each => of(each.map(({ userMicroseconds }) => userMicroseconds)));
      return [a.toFixed(1), b.toFixed(1), (b / a).toFixed(2)];
    });
    lines.push(`| ${[name, ...columns].join(' | ')} |`);
  }
  return lines.join('\n');
}

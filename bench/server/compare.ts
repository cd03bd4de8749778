import { join, resolve } from 'node:path';
import { type Connected, connected, type LoadCase, measured, serverCases } from './cases.ts';
import { MAIN, temporaryFolder } from './processes.ts';

/** Settings of a comparison. */
export interface Comparison {
  readonly seconds: number;
  readonly rounds: number;
  /** Part of the names of the cases that are measured. */
  readonly only: string;
}

const WARM_UP_SECONDS = 1;

/** User times of a step in microseconds, one of each round: of the other checkout, and of this one. */
type Times = readonly [other: number[], own: number[]];

/**
 * Processor time of a step on the server of another checkout and on this one, without and with `--data`. The two take
 * turns of a fraction of a second, so that both meet the same machine. The user time counts, and of the rounds the
 * quickest and the quarter that is quicker than all others: what other programs on the machine take comes on top.
 * @param folder the other checkout, with its packages installed
 * @returns a table
 */
export async function compare(folder: string, { seconds, rounds, only }: Comparison): Promise<string> {
  const data = temporaryFolder();
  const other = resolve(folder, 'env-server/main.ts');
  const pairs: (readonly [string, readonly [LoadCase, LoadCase]])[] = [];
  for (const kept of [false, true]) {
    const flags = (name: string) => (kept ? ['--data', join(data, name)] : []);
    const before = await serverCases(other, flags('before'));
    const after = await serverCases(MAIN, flags('after'));
    for (const [i, { name }] of before.entries()) {
      const title = `${name}${kept ? ', --data' : ''}`;
      if (title.includes(only)) pairs.push([title, [before[i], after[i]]]);
    }
  }
  const rows = new Map<string, Times>();
  for (const [title, pair] of pairs) rows.set(title, await alternate(pair, seconds, rounds));
  return tableOf(rows);
}

async function alternate(
  pair: readonly [LoadCase, LoadCase],
  seconds: number,
  rounds: number,
): Promise<Times> {
  const clients: readonly Connected[] = await Promise.all(pair.map(connected));
  const times: Times = [[], []];
  for (const [i, one] of pair.entries()) await measured(one, clients[i], WARM_UP_SECONDS);
  for (let round = 0; round < rounds; round++) {
    for (const [i, one] of pair.entries()) {
      times[i].push((await measured(one, clients[i], seconds)).userMicroseconds);
    }
  }
  for (const [client] of clients.flat()) client.close();
  return times;
}

const least = (values: readonly number[]): number => Math.min(...values);
const quarter = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 4)];

function tableOf(rows: ReadonlyMap<string, Times>): string {
  const lines = [
    '| user CPU µs a step | other, least | this, least | ratio | other, quarter | this, quarter | ratio |',
    '|---|---|---|---|---|---|---|',
  ];
  for (const [name, times] of rows) {
    const columns = [least, quarter].flatMap(of => {
      const [before, after] = times.map(of);
      return [before.toFixed(1), after.toFixed(1), (after / before).toFixed(2)];
    });
    lines.push(`| ${[name, ...columns].join(' | ')} |`);
  }
  return lines.join('\n');
}

import { mean } from '../algorithms/statistics.ts';

/** Mean of every name over the rows that have it. */
export function averageRows(rows: readonly Metrics[]): Metrics {
  const out: Metrics = {};
  for (const name of new Set(rows.flatMap(row => Object.keys(row)))) {
    out[name] = mean(rows.filter(row => name in row).map(row => row[name]));
  }
  return out;
}

export type Metrics = { [name: string]: number };

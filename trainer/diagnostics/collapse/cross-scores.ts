import type { ContinuationRequest } from '../../policy/policy.ts';
import type { CrossScores } from './collapse-metrics.ts';
import type { ReasoningSample } from './collapse-samples.ts';

/** Samples as rows, their prompts as columns. */
export interface CrossTable {
  readonly rows: readonly ReasoningSample[];
  /** A prompt for each group, in ascending order of groups; then those of members with another prompt. */
  readonly columns: readonly ArrayLike<number>[];
  /** Column of the prompt that each row was written under. */
  readonly matchedColumn: readonly number[];
  /** Rows with a prompt other than that of their group's first sample. */
  readonly mismatches: number;
}

/** Columns of samples: each group lends the prompt of its first, and every other prompt in it is a column for itself. */
export function crossTable(samples: readonly ReasoningSample[]): CrossTable {
  const groups = [...new Set(samples.map(({ group }) => group))].sort((a, b) => a - b);
  const columns = groups.map(group => samples.find(sample => sample.group === group)!.prompt);
  const names = columns.map(prompt => tokenKey(prompt));
  const known = new Map(groups.map((group, column) => [`${group}:${names[column]}`, column]));
  let mismatches = 0;
  const matchedColumn = samples.map(({ group, prompt }) => {
    const name = `${group}:${tokenKey(prompt)}`;
    let column = known.get(name);
    if (column === undefined) {
      column = columns.push(prompt) - 1;
      known.set(name, column);
    }
    if (column >= groups.length) mismatches++;
    return column;
  });
  return { rows: samples, columns, matchedColumn, mismatches };
}

/** The teacher forcing of several tables: score `requests`, hand the sums to `collect`. */
export interface CrossPlan {
  readonly requests: readonly ContinuationRequest[];
  /** @param sums log p of every request's continuations, in nats */
  collect(sums: readonly ArrayLike<number>[]): CrossScores[];
}

/**
 * Every row's reasoning behind every column's prompt. A prompt that several columns have goes through the model once, and so does
 * a reasoning that several rows have, behind each of them.
 */
export function planCrossScores(tables: readonly CrossTable[]): CrossPlan {
  const asked = new Map<string, { readonly prompt: ArrayLike<number>; readonly at: Map<string, number> }>();
  const distinct = new Map<string, ArrayLike<number>>();
  for (const { rows, columns } of tables) {
    const reasonings = byKey(rows.map(({ reasoning }) => reasoning));
    for (const [key, reasoning] of reasonings) distinct.set(key, reasoning);
    for (const [name, prompt] of byKey(columns)) {
      const entry = asked.get(name) ?? { prompt, at: new Map<string, number>() };
      asked.set(name, entry);
      for (const key of reasonings.keys()) if (!entry.at.has(key)) entry.at.set(key, entry.at.size);
    }
  }
  const requests = [...asked.values()].map(({ prompt, at }) => ({
    prompt: Int32Array.from(prompt),
    continuations: [...at.keys()].map(key => Int32Array.from(distinct.get(key)!)),
  }));
  const requestOf = new Map([...asked.keys()].map((name, request) => [name, request]));
  const collect = (sums: readonly ArrayLike<number>[]): CrossScores[] =>
    tables.map(({ rows, columns, matchedColumn }) => {
      const scored = columns.map(prompt => {
        const name = tokenKey(prompt);
        return { sums: sums[requestOf.get(name)!], at: asked.get(name)!.at };
      });
      const perSequence = rows.map(({ reasoning }) => {
        const key = tokenKey(reasoning);
        return scored.map(column => column.sums[column.at.get(key)!]);
      });
      const perToken = perSequence.map((row, i) => row.map(sum => sum / rows[i].reasoning.length));
      return { perSequence, perToken, matchedColumn, prompts: columns };
    });
  return { requests, collect };
}

/**
 * Tokens that go through the model for each table of a {@link planCrossScores}; what an earlier table has computed is not counted
 * again.
 */
export function countScoredTokens(tables: readonly CrossTable[]): number[] {
  const prompts = tables.map(({ columns }) => byKey(columns));
  const reasonings = tables.map(({ rows }) => byKey(rows.map(({ reasoning }) => reasoning)));
  return tables.map((_, table) => {
    const costs = new Map<string, number>();
    const newTokens = (earlier: readonly number[]): number => {
      const name = earlier.join();
      let cost = costs.get(name);
      if (cost === undefined) {
        cost = 0;
        for (const [key, { length }] of reasonings[table]) {
          if (!earlier.some(other => reasonings[other].has(key))) cost += length;
        }
        costs.set(name, cost);
      }
      return cost;
    };
    let count = 0;
    for (const [name, prompt] of prompts[table]) {
      const earlier = tables
        .map((_, other) => other)
        .filter(other => other < table && prompts[other].has(name));
      count += (earlier.length === 0 ? prompt.length : 0) + newTokens(earlier);
    }
    return count;
  });
}

function byKey(sequences: readonly ArrayLike<number>[]): Map<string, ArrayLike<number>> {
  return new Map(sequences.map(ids => [tokenKey(ids), ids]));
}

/** Equal for equal token ids. */
function tokenKey(ids: ArrayLike<number>): string {
  return Array.from(ids).join();
}

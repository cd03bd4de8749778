import { setImmediate } from 'node:timers/promises';
import type { JsonObject } from '../../../shared/json.ts';
import { isObject } from '../../custom/answer.ts';
import { Problem } from '../../problems.ts';

/** Fields with a rollout's task and repetition. */
const TASK = '_ng_task_index';
const REPEAT = '_ng_rollout_index';
/** Most names of numbers in a run. Tasks yield to other clients; the numbers of one task do not. */
const MAX_NAMES = 1000;

/**
 * Statistics of a run's rewards and other numbers under NeMo Gym's names: of all rollouts, and of each task. Masked
 * rollouts are left out and counted. Other clients get their turn after each task.
 * @param verdicts replies to `/verify`, without prompts and responses
 * @returns JSON, because the objects of 150,000 tasks take 0.1 s to write at once
 * @throws Problem where they have too many names
 */
export async function aggregate(verdicts: readonly JsonObject[]): Promise<string> {
  const scored = verdicts.filter(verdict => verdict.mask_sample !== true);
  const byTask = Map.groupBy(scored, verdict => verdict[TASK] ?? 0);
  const statistics = statisticsOf(scored);
  const coverage = {
    'coverage/measured_rollouts': scored.length,
    'coverage/masked_rollouts': verdicts.length - scored.length,
    'coverage/measured_tasks': byTask.size,
    'coverage/fully_masked_tasks': new Set(verdicts.map(verdict => verdict[TASK] ?? 0)).size - byTask.size,
  };
  const covered = scored.length < verdicts.length ? coverage : {};
  const num_repeats = new Set(verdicts.map(verdict => verdict[REPEAT] ?? 0)).size;
  const means = Object.entries(statistics).filter(([name]) => name.startsWith('mean/'));
  const groups: string[] = [];
  for (const [task, own] of byTask) {
    groups.push(JSON.stringify({ ...statisticsOf(own), num_rollouts: own.length, [TASK]: task }));
    await setImmediate();
  }
  const agent = JSON.stringify({ ...statistics, ...covered, num_repeats });
  const key = JSON.stringify({ ...Object.fromEntries(means), ...covered });
  return `{"agent_metrics":${agent},"key_metrics":${key},"group_level_metrics":[${groups.join()}]}`;
}

function statisticsOf(verdicts: readonly JsonObject[]): { [name: string]: number } {
  const columns = new Map<string, number[]>();
  for (const verdict of verdicts) {
    const usage =
      isObject(verdict.response) && isObject(verdict.response.usage) ? verdict.response.usage : {};
    // Not copied: an object of many names takes long to copy.
    for (const [name, given] of fieldsOf(verdict, usage)) {
      const value = typeof given === 'boolean' ? Number(given) : given;
      if (name.startsWith('_') || typeof value !== 'number') continue;
      const column = columns.get(name);
      if (column) column.push(value);
      else if (columns.size < MAX_NAMES) columns.set(name, [value]);
      else throw new Problem('invalid_request', `verify_responses have over ${MAX_NAMES} names of numbers`);
    }
  }
  const statistics: { [name: string]: number } = {};
  for (const [name, values] of columns) {
    values.sort((a, b) => a - b);
    const count = values.length;
    const mean = values.reduce((sum, value) => sum + value) / count;
    const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
    statistics[`mean/${name}`] = mean;
    statistics[`max/${name}`] = values[count - 1];
    statistics[`min/${name}`] = values[0];
    statistics[`median/${name}`] = (values[(count - 1) >> 1] + values[count >> 1]) / 2;
    statistics[`std/${name}`] = Math.sqrt(squares / Math.max(1, count - 1));
  }
  return statistics;
}

function* fieldsOf(verdict: JsonObject, usage: JsonObject): Generator<[name: string, value: unknown]> {
  for (const name in verdict) if (!Object.hasOwn(usage, name)) yield [name, verdict[name]];
  for (const name in usage) yield [name, usage[name]];
}

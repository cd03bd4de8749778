import { setImmediate } from 'node:timers/promises';
import type { Static } from 'typebox';
import { isObject, type JsonObject } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { Config, Format, Wrappers } from '../../operations/schemas/fields.ts';
import type { CreatedSession } from '../../operations/schemas/session.ts';
import { compileCheck } from '../../operations/validation.ts';
import { Problem } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import type { WrapperChoice } from '../../wrappers/wrap.ts';
import type { ToolDocument } from '../mcp/tools.ts';
import { type Block, playingTools, promptBlocks } from '../ors/sessions.ts';
import { tasksOf } from '../ors/tasks.ts';

/** Most rows of a request; the split `train` has ten times as many. */
const MAX_ROWS = 1000;
const DEFAULT_ROWS = 100;
const MAX_START = 1_000_000;
/** Most bytes of a reply. */
const MAX_BYTES = 32 * 1024 * 1024;
/** Most time of a request: HTTP clients seldom wait longer. */
const MAX_MS = 300_000;
const ADVICE = 'Play with the tools. When the episode is over, answer without calling one.';

const Rows = closed({
  split: Type.Optional(Type.String({ maxLength: 128 })),
  start: Type.Optional(Type.Integer({ minimum: 0, maximum: MAX_START })),
  count: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_ROWS })),
  config: Type.Optional(Config),
  wrappers: Type.Optional(Wrappers),
  observation_format: Type.Optional(Format),
});
const check = compileCheck(Rows, 'rows');

/** Blocks as the text that NeMo Gym's models read. */
export const textOf = (blocks: readonly Block[]): string =>
  blocks.map(block => (block.type === 'text' ? block.text : '[image]')).join('\n\n');

/**
 * Rows of a data set as lines of JSON, one for each task of a split from `start` on: the prompt with the first
 * observation, the tools, and what begins the episode.
 * @param isLeft true if the client is gone, for whom no more rows are made
 * @throws Problem `body_too_large` for rows that take too long or too many bytes
 */
export async function rowsOf(
  dispatcher: Dispatcher,
  principal: Principal,
  envId: string,
  wishes: JsonObject,
  isLeft: () => boolean,
): Promise<Buffer> {
  check(wishes);
  const { split = 'train', start = 0, count = DEFAULT_ROWS, ...more } = wishes as Static<typeof Rows>;
  const same = more as JsonObject & { config?: JsonObject; wrappers?: WrapperChoice[] };
  const { catalog } = dispatcher.services;
  const until = performance.now() + MAX_MS;
  const lines: Buffer[] = [];
  let bytes = 0;
  for (const task of tasksOf(catalog.variant(envId, same.config), split, start, start + count)) {
    if (isLeft()) break;
    const begins = { ...same, ...task, config: { ...same.config, ...task.config } };
    const session = await dispatcher.operate<CreatedSession>(principal, 'create', {
      env_id: envId,
      ...begins,
    });
    await dispatcher.operate(principal, 'close', { session_id: session.session_id });
    const variant = catalog.variant(envId, begins.config, same.wrappers);
    const content = `${textOf(promptBlocks(variant, session))}\n\n${ADVICE}`;
    const tools = playingTools(variant).map(functionTool);
    const params = { input: [{ role: 'user', content }], tools, parallel_tool_calls: false };
    const line = Buffer.from(`${JSON.stringify({ responses_create_params: params, ...begins })}\n`);
    bytes += line.length;
    if (bytes > MAX_BYTES) throw tooMany(`${MAX_BYTES} bytes`, lines.length);
    if (performance.now() > until) throw tooMany(`${MAX_MS} ms`, lines.length);
    lines.push(line);
    // Other clients get their turn.
    await setImmediate();
  }
  return Buffer.concat(lines);
}

function tooMany(limit: string, rows: number): Problem {
  const advice = `set count to ${Math.max(1, rows)} or less, and start to where the next request begins`;
  return new Problem('body_too_large', `rows: over ${limit} after ${rows} rows; ${advice}`);
}

/** A tool as OpenAI's Responses API takes it. */
const functionTool = ({ name, description, inputSchema: parameters }: ToolDocument): JsonObject => ({
  type: 'function',
  name,
  description,
  parameters,
  strict: false,
});

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

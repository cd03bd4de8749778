import { isObject } from '../../../shared/json.ts';
import type { TurnRecord } from '../../../shared/run-folder/run-files.ts';
import { isEndName } from '../../../shared/step-info.ts';
import { object } from '../episode-record.ts';
import { callOf, contentText, type Message, messagesIn, promptText, turnOf, turnsOf } from './chat.ts';
import {
  clip,
  episodeOf,
  FormatError,
  numberOf,
  numbersOf,
  type ReadEpisode,
  type Row,
  stepOf,
  successOf,
  type TrajectoryFormat,
  textOf,
} from './format.ts';

/** Numbers of a row that are not rewards. */
const VERL_NOT_REWARDS = ['step', 'score', 'acc'];

/**
 * verl's `trainer.rollout_data_dir` and `trainer.validation_data_dir`, which RAGEN also writes: `10.jsonl` of step 10.
 */
export const VERL: TrajectoryFormat = {
  name: 'verl',
  fields: 'input, output, score',
  recognizes: row => typeof row.input === 'string' && typeof row.output === 'string',
  read(row) {
    const prompt = messagesIn(row, 'input', 'user');
    const rewards = numbersOf(row, VERL_NOT_REWARDS);
    const tag = typeof row.data_source === 'string' ? row.data_source : undefined;
    return {
      step: stepOf(row),
      group: promptText(prompt),
      episode: episodeOf({
        format: 'verl',
        turns: turnsOf(prompt, messagesIn(row, 'output', 'assistant')),
        success: successOf(row),
        return: numberOf(row, 'score'),
        expected: row.gts,
        ...(tag === undefined ? {} : { tag }),
        ...(rewards ? { rewards } : {}),
      }),
    };
  },
};

/** Fields that distinguish a result from a row of TRL. */
const OWN_FIELDS = ['example_id', 'is_completed', 'timing', 'generation_ms', 'stop_condition'];

/** Results of Prime Intellect's verifiers: `results.jsonl` of `vf-eval --save-results`. */
export const VERIFIERS: TrajectoryFormat = {
  name: 'verifiers',
  fields: 'prompt, completion, reward, example_id',
  recognizes: row =>
    row.prompt !== undefined &&
    row.completion !== undefined &&
    OWN_FIELDS.some(name => Object.hasOwn(row, name)),
  read(row) {
    const metrics = isObject(row.metrics) ? row.metrics : {};
    const rewards = numbersOf(metrics, []);
    const tag = typeof row.task === 'string' && row.task !== '' ? row.task : undefined;
    const end = isObject(row.error) || typeof row.error === 'string' ? 'error' : row.stop_condition;
    // A rollout that failed before its first request has null for both.
    const messages = (name: string, role: string) => (row[name] === null ? [] : messagesIn(row, name, role));
    return {
      step: 0,
      group: `${tag ?? ''} ${textOf(row.example_id ?? row.prompt)}`,
      episode: episodeOf({
        format: 'verifiers',
        turns: turnsOf(messages('prompt', 'user'), messages('completion', 'assistant')),
        success: successOf({ ...metrics, ...row }),
        return: numberOf(row, 'reward'),
        expected: row.answer,
        truncated: row.is_truncated === true,
        ...(isEndName(end) ? { endedBy: end } : {}),
        ...(tag === undefined ? {} : { tag }),
        ...(rewards ? { rewards } : {}),
      }),
    };
  },
};

/** Numbers of a row that are not rewards. */
const TRL_NOT_REWARDS = ['step', 'advantage', 'reward'];

/**
 * TRL's `log_completions`: `completions/completions_00010.parquet`, or the same table as JSON Lines. Every other number
 * of a row is the reward of a function; their sum is the return unless the row has a `reward`.
 */
export const TRL: TrajectoryFormat = {
  name: 'TRL',
  fields: 'prompt, completion',
  recognizes: row => row.prompt !== undefined && row.completion !== undefined,
  read(row) {
    const prompt = messagesIn(row, 'prompt', 'user');
    const rewards = numbersOf(row, TRL_NOT_REWARDS);
    const sum = rewards && Object.values(rewards).reduce((a, b) => a + b, 0);
    const tag = typeof row.mode === 'string' ? row.mode : undefined;
    return {
      step: stepOf(row),
      group: promptText(prompt),
      episode: episodeOf({
        format: 'TRL',
        turns: turnsOf(prompt, messagesIn(row, 'completion', 'assistant')),
        success: successOf(row),
        return: numberOf(row, 'reward') ?? sum ?? null,
        advantage: numberOf(row, 'advantage'),
        ...(tag === undefined ? {} : { tag }),
        ...(rewards ? { rewards } : {}),
      }),
    };
  },
};

/** `traces.jsonl` of `vf-eval` of verifiers 0.4: one episode a line, with a graph of messages for each agent. */
export const VERIFIERS_TRACES: TrajectoryFormat = {
  name: 'verifiers',
  fields: 'traces, task, env',
  recognizes: row => Array.isArray(row.traces) && isObject(row.task),
  read(row) {
    const traces = (row.traces as readonly unknown[]).filter(isObject);
    // An episode that failed before an agent began has none.
    return traces.length === 0 ? [episodeIn(row, {})] : traces.map(trace => episodeIn(row, trace));
  },
};

function episodeIn(row: Row, trace: Row): ReadEpisode {
  const task = object(row.task);
  const data = object(task.data);
  const work = object(object(row.run).work);
  const { id } = object(row.env);
  const metrics = numbersOf(object(trace.metrics), []) ?? {};
  const scores = Object.entries(object(trace.rewards)).flatMap(([name, reward]) => {
    const { score, weight = 1 } = isObject(reward) ? reward : {};
    return typeof score === 'number' && typeof weight === 'number' ? [{ name, score, weight }] : [];
  });
  const rewards = { ...Object.fromEntries(scores.map(({ name, score }) => [name, score])), ...metrics };
  const errors = trace.errors ?? row.errors;
  const end = Array.isArray(errors) && errors.length > 0 ? 'error' : trace.stop_condition;
  const tag = typeof id === 'string' && id !== '' ? id : undefined;
  return {
    step: typeof work.step === 'number' ? work.step : 0,
    group: textOf(object(row.group).id ?? data.idx ?? data.name ?? task.key),
    episode: episodeOf({
      format: 'verifiers',
      turns: turnsOf([], messagesIn({ messages: conversationIn(trace) }, 'messages', 'user')),
      success: successOf(metrics),
      return: scores.length === 0 ? null : scores.reduce((sum, { score, weight }) => sum + score * weight, 0),
      expected: data.answer,
      truncated: trace.is_timeout === true,
      ...(isEndName(end) ? { endedBy: end } : {}),
      ...(tag === undefined ? {} : { tag }),
      ...(Object.keys(rewards).length > 0 ? { rewards } : {}),
    }),
  };
}

/** Messages on the path to the last one; a compacted graph has other leaves. */
function conversationIn({ nodes }: Row): unknown[] {
  const all = Array.isArray(nodes) ? nodes.filter(isObject) : [];
  const messages: unknown[] = [];
  let at = all.length - 1;
  // A parent comes before its children, so the path ends.
  while (at >= 0) {
    const { message, parent } = all[at];
    messages.push(message);
    at = typeof parent === 'number' && Number.isInteger(parent) && parent < at ? parent : -1;
  }
  return messages.reverse();
}

/** The Agent Trajectory Interchange Format of Harbor: `agent/trajectory.json` of a trial, versions 1.x. */
export const ATIF: TrajectoryFormat = {
  name: 'ATIF',
  fields: 'schema_version (ATIF-v1.x), steps',
  recognizes: row => typeof row.schema_version === 'string' && row.schema_version.startsWith('ATIF-v1.'),
  read(row) {
    const { steps, agent, session_id, extra } = row;
    if (!Array.isArray(steps)) throw new FormatError(`\`steps\` is a list of steps, got ${clip(steps)}`);
    const tag = isObject(agent) && typeof agent.name === 'string' ? agent.name : undefined;
    const { turns, task } = turnsIn(steps);
    const reward = isObject(extra) && typeof extra.reward === 'number' ? extra.reward : null;
    return {
      step: 0,
      group: task,
      episode: episodeOf({
        format: 'ATIF',
        turns,
        success: isObject(extra) ? successOf(extra) : null,
        return: reward,
        ...(tag === undefined ? {} : { tag }),
        ...(typeof session_id === 'string' ? { id: session_id } : {}),
      }),
    };
  },
};

/**
 * One turn for each step of the agent; its prompt holds what the system, the user and the tools said since the previous
 * step. The first is the user's message.
 */
function turnsIn(steps: readonly unknown[]): { readonly turns: TurnRecord[]; readonly task: string } {
  const turns: TurnRecord[] = [];
  let before: Message[] = [];
  let task = '';
  for (const [i, step] of steps.entries()) {
    if (!isObject(step) || typeof step.source !== 'string')
      throw new FormatError(
        `\`steps[${i}]\` is a step with a \`source\` and a \`message\`, got ${clip(step)}`,
      );
    const message = messageOf(step);
    if (step.source === 'agent') {
      turns.push(turnOf(promptText(before), message));
      before = [];
    } else {
      before.push(message);
      if (step.source === 'user' && task === '') task = message.text;
    }
    before.push(...observationsOf(step));
  }
  return { turns, task };
}

function messageOf(step: Row): Message {
  const thought = typeof step.reasoning_content === 'string' ? step.reasoning_content : '';
  const text = [thought, contentText(step.message)].filter(part => part !== '').join('\n\n');
  const calls = Array.isArray(step.tool_calls) ? step.tool_calls.map(callOf) : [];
  return { role: String(step.source), text, calls };
}

/** Results of the tools that a step called. */
function observationsOf({ observation }: Row): Message[] {
  const results = isObject(observation) && Array.isArray(observation.results) ? observation.results : [];
  return results
    .filter(isObject)
    .map(({ content }) => ({ role: 'observation', text: contentText(content), calls: [] }));
}

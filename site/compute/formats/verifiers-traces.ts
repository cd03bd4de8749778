import { isEndName } from '../../../shared/end-names.ts';
import { isRow, messagesIn, turnsOf } from './chat.ts';
import {
  episodeOf,
  numbersOf,
  type ReadEpisode,
  type Row,
  successOf,
  type TrajectoryFormat,
  textOf,
} from './format.ts';

/** `traces.jsonl` of `vf-eval` of verifiers 0.4: one episode a line, with a graph of messages for each agent. */
export const VERIFIERS_TRACES: TrajectoryFormat = {
  name: 'verifiers',
  fields: 'traces, task, env',
  recognizes: row => Array.isArray(row.traces) && isRow(row.task),
  read(row) {
    const traces = (row.traces as readonly unknown[]).filter(isRow);
    // An episode that failed before an agent began has none.
    return traces.length === 0 ? [episodeIn(row, {})] : traces.map(trace => episodeIn(row, trace));
  },
};

function episodeIn(row: Row, trace: Row): ReadEpisode {
  const task = partOf(row, 'task');
  const data = partOf(task, 'data');
  const work = partOf(partOf(row, 'run'), 'work');
  const { id } = partOf(row, 'env');
  const metrics = numbersOf(partOf(trace, 'metrics'), []) ?? {};
  const scores = Object.entries(partOf(trace, 'rewards')).flatMap(([name, reward]) => {
    const { score, weight = 1 } = isRow(reward) ? reward : {};
    return typeof score === 'number' && typeof weight === 'number' ? [{ name, score, weight }] : [];
  });
  const rewards = { ...Object.fromEntries(scores.map(({ name, score }) => [name, score])), ...metrics };
  const errors = trace.errors ?? row.errors;
  const end = Array.isArray(errors) && errors.length > 0 ? 'error' : trace.stop_condition;
  const tag = typeof id === 'string' && id !== '' ? id : undefined;
  return {
    step: typeof work.step === 'number' ? work.step : 0,
    group: textOf(partOf(row, 'group').id ?? data.idx ?? data.name ?? task.key),
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
  const all = Array.isArray(nodes) ? nodes.filter(isRow) : [];
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

const partOf = (row: Row, name: string): Row => {
  const value = row[name];
  return isRow(value) ? value : {};
};

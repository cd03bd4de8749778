import { isEndName } from '../../../shared/end-names.ts';
import { isRow, messagesIn, turnsOf } from './chat.ts';
import { episodeOf, numberOf, numbersOf, successOf, type TrajectoryFormat, textOf } from './format.ts';

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
    const metrics = isRow(row.metrics) ? row.metrics : {};
    const rewards = numbersOf(metrics, []);
    const tag = typeof row.task === 'string' && row.task !== '' ? row.task : undefined;
    const end = isRow(row.error) || typeof row.error === 'string' ? 'error' : row.stop_condition;
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

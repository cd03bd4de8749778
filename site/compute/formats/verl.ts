import { messagesIn, promptText, turnsOf } from './chat.ts';
import { episodeOf, numberOf, numbersOf, stepOf, successOf, type TrajectoryFormat } from './format.ts';

/** Numbers of a row that are not rewards. */
const NO_REWARDS = ['step', 'score', 'acc'];

/**
 * verl's `trainer.rollout_data_dir` and `trainer.validation_data_dir`, which RAGEN also writes: `10.jsonl` of step 10.
 */
export const VERL: TrajectoryFormat = {
  name: 'verl',
  fields: 'input, output, score',
  recognizes: row => typeof row.input === 'string' && typeof row.output === 'string',
  read(row) {
    const prompt = messagesIn(row, 'input', 'user');
    const rewards = numbersOf(row, NO_REWARDS);
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

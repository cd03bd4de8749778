import { messagesIn, promptText, turnsOf } from './chat.ts';
import { episodeOf, numberOf, numbersOf, stepOf, successOf, type TrajectoryFormat } from './format.ts';

/** Numbers of a row that are not rewards. */
const NO_REWARDS = ['step', 'advantage', 'reward'];

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
    const rewards = numbersOf(row, NO_REWARDS);
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

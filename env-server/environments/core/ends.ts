/** Ends of an episode, by the name that `info.ended_by` gives them: each a sentence in the past tense, without its full stop. */
export interface Ends {
  readonly [name: string]: string;
}

/** The end of an episode that a step limit cut short: the environment's, the session's or a wrapper's. */
export const TIME_LIMIT = 'time_limit';

/** Info of a step that a step limit makes the last one of its episode. */
export const withTimeLimit = <Info extends object>(info: Info): Info & { readonly ended_by: string } => ({
  ...info,
  ended_by: TIME_LIMIT,
});

/** Ends of an environment that takes one answer. */
export const RIGHT_OR_WRONG = {
  right_answer: 'Gave the right answer',
  wrong_answer: 'Gave a wrong answer',
} as const satisfies Ends;

export const rightOrWrong = (right: boolean): keyof typeof RIGHT_OR_WRONG =>
  right ? 'right_answer' : 'wrong_answer';

/** All ends that an environment's episodes may have, `time_limit` last, in its own words where it has some. */
export function endsOf({ ends }: { readonly ends?: Ends }): Ends {
  const text = ends?.[TIME_LIMIT] ?? 'Reached the step limit';
  return { ...ends, [TIME_LIMIT]: text };
}

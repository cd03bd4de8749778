import { Type } from '../../../../shared/schema/type.ts';
import type { EnvironmentSpec } from '../environment.ts';
import { anyText, LINES, type Space, text } from '../spaces.ts';

export const MAX_QUESTION_LENGTH = 20_000;
export const MAX_ANSWER_LENGTH = 2000;

/** Common fields of text environments with a best return of 1. */
export const MARKED_WORDS = {
  observationFormats: ['text', 'structured'],
  rewardRange: [0, 1],
  rewardThreshold: 1,
} as const satisfies Partial<EnvironmentSpec>;

/** The same for a question that is shown at once and answered in a few words. */
export const MARKED_QUESTION = {
  ...MARKED_WORDS,
  observationSpace: { type: 'Text', maxLength: MAX_QUESTION_LENGTH + MAX_ANSWER_LENGTH },
  actionSpace: { type: 'Text', minLength: 1, maxLength: MAX_ANSWER_LENGTH, charset: LINES },
  knownOptimum: { success: 1, source: 'reference policy `oracle`, which knows the label' },
} as const satisfies Partial<EnvironmentSpec>;

/**
 * The space of texts from the environment itself or from a file.
 * @param files the configuration's files, which may hold any characters
 */
export function words(files: readonly (string | undefined)[], charset = LINES): (maxLength: number) => Space {
  const own = files.every(file => file === undefined);
  return maxLength => (own ? text(maxLength, charset) : anyText(maxLength));
}

/** Reset options that pin a question and its answer. */
export const questionOptions = (answer: string) => ({
  question: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: MAX_QUESTION_LENGTH,
      description: 'The question; goes with answer.',
    }),
  ),
  answer: Type.Optional(Type.String({ pattern: '\\S', maxLength: MAX_ANSWER_LENGTH, description: answer })),
  index: indexOption('Record of the data file within the split, from 0.'),
});

/** A reset option that pins a record by its index. */
export const indexOption = (description: string) => Type.Optional(Type.Integer({ minimum: 0, description }));

const MAX_PATH_LENGTH = 4096;

/** A configuration key that names a file on the server's disk. */
export const dataFile = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: MAX_PATH_LENGTH, description }));

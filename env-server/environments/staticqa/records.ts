import type { JsonObject } from '../../../shared/json.ts';
import { InvalidField, textField } from '../core/datasets/records.ts';
import { readQuestion } from '../mathwordproblems/mathwordproblems.ts';

export interface Item {
  readonly question: string;
  /** Choices of a multiple-choice question, in the order of their letters; else empty. */
  readonly choices: readonly string[];
  /** The right answer; the letter of a multiple-choice question. */
  readonly answer: string;
}

export const LETTERS = 'ABCDEFGHIJ';
const GSM8K_MARK = '####';

/** Reads a record of MetaMathQA, GSM8K or MMLU, which it recognizes by the fields. @throws InvalidField */
export function readItem(record: JsonObject): Item {
  if ('choices' in record) return readMmlu(record);
  if ('response' in record) return { ...readQuestion(record), choices: [] };
  const solution = textField(record, 'answer');
  const at = solution.lastIndexOf(GSM8K_MARK);
  const answer = at < 0 ? '' : solution.slice(at + GSM8K_MARK.length).trim();
  if (answer === '') throw new InvalidField('answer', `has no text after ${GSM8K_MARK}`);
  return { question: textField(record, 'question'), choices: [], answer };
}

function readMmlu(record: JsonObject): Item {
  const { choices, answer } = record;
  if (!Array.isArray(choices) || choices.length < 2 || choices.length > LETTERS.length) {
    throw new InvalidField('choices', `expected a list of 2 to ${LETTERS.length} texts`);
  }
  for (const [index, choice] of choices.entries()) {
    if (typeof choice !== 'string') throw new InvalidField(`choices[${index}]`, 'expected text');
  }
  const index = typeof answer === 'string' ? LETTERS.indexOf(answer.trim().toUpperCase()) : answer;
  if (
    typeof index !== 'number' ||
    !Number.isInteger(index) ||
    index < 0 ||
    index >= choices.length ||
    answer === ''
  ) {
    throw new InvalidField('answer', `expected a number from 0 to ${choices.length - 1} or a letter`);
  }
  return { question: textField(record, 'question'), choices: choices as string[], answer: LETTERS[index] };
}

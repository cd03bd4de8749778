import type { Static } from 'typebox';
import type { JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed } from '../../../shared/schema/type.ts';
import { unchanged } from '../core/actions.ts';
import { chooseRecord, InvalidField, textField } from '../core/datasets/records.ts';
import {
  dataFile,
  drawWordProblem,
  MARKED_QUESTION,
  MAX_ANSWER_LENGTH,
  MAX_QUESTION_LENGTH,
  questionOptions,
  words,
} from '../core/datasets/word-problems.ts';
import { type Environment, InvalidOptions, RIGHT_OR_WRONG, stepInfo } from '../core/environment.ts';
import { integerSetting } from '../core/settings.ts';
import { dict, FLAG, list } from '../core/spaces.ts';
import { SPLIT_PRESETS, splitSchema } from '../core/splits.ts';

const MAX_STEPS = 5;

const configSchema = closed({
  split: splitSchema,
  data: dataFile(
    'File of questions instead of generated ones: .jsonl, .json or .parquet with the fields query and response, as MetaMathQA is published.',
  ),
  max_steps: integerSetting(MAX_STEPS, [1], 'Answers before truncation.'),
});

const optionsSchema = closed(questionOptions('The right answer; goes with question.'));

type MathWordProblemsConfig = Static<typeof configSchema>;
type MathWordProblemsOptions = Static<typeof optionsSchema>;

export interface Question {
  readonly question: string;
  readonly answer: string;
}

export type MathWordProblemsState = {
  readonly question: string;
  readonly answer: string;
  /** Answers so far. */
  readonly tries: readonly string[];
  readonly solved: boolean;
};

export const mathWordProblems: Environment<MathWordProblemsConfig, MathWordProblemsState> = {
  spec: {
    id: 'MathWordProblems-v0',
    aliases: ['MetaMathQA-v0'],
    title: 'Mathematical questions with retries',
    description: [
      'A mathematical question is shown until it is answered rightly. The right answer pays 1 at the first try, 1/2 at the second, 1/4 at the third and so on; a wrong one pays 0. The episode ends only with the right answer, or after `max_steps` tries.',
      '',
      'Answers are compared with the label in lower case and without white space. An empty answer is invalid and counts as a try.',
      '',
      'Questions are generated word problems. `data` names a file of questions to ask instead, such as MetaMathQA as it was published: the label is the text after "The answer is:" in `response`. `info` has `tries`.',
    ].join('\n'),
    tags: ['mathematics', 'question answering', 'text'],
    configSchema,
    optionsSchema,
    presets: SPLIT_PRESETS,
    ...MARKED_QUESTION,
    maxEpisodeSteps: MAX_STEPS,
    ends: { right_answer: RIGHT_OR_WRONG.right_answer },
    exampleAction: '42',
    history: [{ version: 0, change: 'First version.' }],
  },

  describe: () => ({
    instruction:
      'Answer the mathematical question. A wrong answer may be corrected, but every retry halves what the right one is worth.',
    actionFormat: 'the bare answer, e.g. 42 or x + 1',
  }),

  observationSpaces({ data }) {
    const of = words([data]);
    return {
      text: of(MAX_QUESTION_LENGTH + MAX_ANSWER_LENGTH),
      structured: dict({
        question: of(MAX_QUESTION_LENGTH),
        tries: list(of(MAX_ANSWER_LENGTH)),
        solved: FLAG,
      }),
    };
  },

  async reset(config, rng, options) {
    const { question, answer } = await chooseQuestion(config, rng, options);
    return { question, answer, tries: [], solved: false };
  },

  step(state, action) {
    const text = typeof action === 'number' ? String(action) : action;
    if (typeof text !== 'string' || text.length > MAX_ANSWER_LENGTH || state.solved) {
      const end = state.solved ? { success: true, ended_by: 'right_answer' } : null;
      return unchanged(state, false, end, { tries: state.tries.length });
    }
    const solved = fold(text) === fold(state.answer);
    const reward = solved ? 0.5 ** state.tries.length : 0;
    const tries = [...state.tries, text];
    return {
      state: { ...state, tries, solved },
      reward,
      terminated: solved,
      info: stepInfo(solved, fold(text) !== '', true, solved && 'right_answer', { tries: tries.length }),
    };
  },

  observe({ question, tries, solved }, format) {
    if (format === 'structured') return { question, tries, solved };
    if (tries.length === 0) return question;
    const last = tries[tries.length - 1].trim();
    return solved
      ? `${question}\n${last} is right.`
      : `${question}\n${last === '' ? 'An empty answer' : last} is not right. Think again.`;
  },

  references: {
    oracle: {
      title: 'The label',
      plan: ({ answer, solved }) => (solved ? [] : [answer]),
    },
    random: {
      title: 'Random whole numbers from 0 to 99',
      plan: (_state, count, rng) => Array.from({ length: count }, () => String(rng.integer(100))),
    },
  },
};

/** Lower case without white space: answers with the same folded text are equal. */
function fold(answer: string): string {
  return answer.toLowerCase().replaceAll(/\s+/g, '');
}

/** The label of a MetaMathQA response: everything after the first "The answer is:". */
export function labelOf(response: string): string | undefined {
  return /The answer is:(.*)$/s.exec(response)?.[1].trim();
}

/** A record of MetaMathQA. @throws InvalidField */
export function readQuestion(record: JsonObject): Question {
  const answer = labelOf(textField(record, 'response'));
  if (!answer) throw new InvalidField('response', 'has no text after "The answer is:"');
  return { question: textField(record, 'query'), answer };
}

async function chooseQuestion(
  { data, split }: MathWordProblemsConfig,
  rng: Random,
  { question, answer, index }: MathWordProblemsOptions,
): Promise<Question> {
  if (question !== undefined && answer !== undefined) return { question, answer };
  if (question !== undefined) throw new InvalidOptions('/answer', 'question needs its answer next to it');
  if (answer !== undefined) throw new InvalidOptions('/question', 'answer needs its question next to it');
  if (data !== undefined) {
    return chooseRecord(
      { path: data, read: readQuestion, split, key: record => record.question, index },
      rng,
    );
  }
  if (index !== undefined) throw new InvalidOptions('/index', 'index needs a data file in the config');
  const problem = drawWordProblem(rng, split);
  return { question: problem.question, answer: String(problem.answer) };
}

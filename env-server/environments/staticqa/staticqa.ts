import type { Static } from 'typebox';
import type { JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
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
import {
  type Environment,
  InvalidOptions,
  RIGHT_OR_WRONG,
  rightOrWrong,
  stepInfo,
} from '../core/environment.ts';
import { choiceSetting } from '../core/settings.ts';
import { dict, FLAG, list, orNull } from '../core/spaces.ts';
import { isInSplit, type Split, splitSchema } from '../core/splits.ts';
import { readQuestion } from '../mathwordproblems/mathwordproblems.ts';

interface Item {
  readonly question: string;
  /** Choices of a multiple-choice question, in the order of their letters; else empty. */
  readonly choices: readonly string[];
  /** The right answer; the letter of a multiple-choice question. */
  readonly answer: string;
}

const LETTERS = 'ABCDEFGHIJ';
const GSM8K_MARK = '####';

/**
 * Parses a record of MetaMathQA, GSM8K or MMLU, which it recognizes by its fields.
 * @throws InvalidField
 */
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

const KINDS = ['word_problem', 'multiple_choice', 'mixed'] as const;
type QuestionKind = (typeof KINDS)[number];

const CHOICES = 4;
const DAYS = ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'];
const WORDS = [
  'anchor', 'barley', 'candle', 'copper', 'garden', 'hammer', 'island', 'jacket', 'kettle', 'ladder', 'lantern', 'marble',
  'meadow', 'needle', 'orchard', 'pepper', 'pillow', 'quarry', 'ribbon', 'saddle', 'shelter', 'silver', 'tunnel', 'velvet',
  'violet', 'walnut', 'window', 'winter', 'yellow', 'zephyr',
]; // biome-ignore format: a list reads better in rows

interface QuestionDraft {
  readonly question: string;
  readonly right: string;
  /** Wrong choices, more than enough and all different from the right one. */
  readonly wrong: readonly string[];
}

const DRAFTS: readonly ((rng: Random) => QuestionDraft)[] = [
  largest,
  divisible,
  sequence,
  weekday,
  alphabetical,
  letters,
  product,
];

/** A question of the split, which its text decides. */
export function drawItem(kind: QuestionKind, split: Split, rng: Random): Item {
  const chosen = kind === 'mixed' ? rng.choice(KINDS.slice(0, 2)) : kind;
  if (chosen === 'word_problem') {
    const { question, answer } = drawWordProblem(rng, split);
    return { question, choices: [], answer: String(answer) };
  }
  for (;;) {
    const { question, right, wrong } = rng.choice(DRAFTS)(rng);
    const others = [...new Set(wrong)].filter(choice => choice !== right);
    const choices = rng.shuffle([right, ...rng.shuffle(others).slice(0, CHOICES - 1)]);
    if (choices.length === CHOICES && isInSplit(() => question, split)) {
      return { question, choices, answer: LETTERS[choices.indexOf(right)] };
    }
  }
}

function numbers(rng: Random, count: number, most: number): number[] {
  return Array.from({ length: count }, () => 1 + rng.integer(most));
}

function largest(rng: Random): QuestionDraft {
  const pairs = Array.from({ length: CHOICES }, () => numbers(rng, 2, 40));
  const values = pairs.map(([a, b]) => a * b);
  const best = values.indexOf(Math.max(...values));
  const unique = values.filter(value => value === values[best]).length === 1;
  const texts = pairs.map(([a, b]) => `${a} * ${b}`);
  return {
    question: `Which product is the largest: ${texts.join(', ')}?`,
    right: texts[best],
    wrong: unique ? texts.filter((_, index) => index !== best) : [],
  };
}

function divisible(rng: Random): QuestionDraft {
  const divisor = 3 + rng.integer(9);
  const right = String(divisor * (11 + rng.integer(30)));
  const others = numbers(rng, 12, 300).filter(value => value % divisor !== 0);
  const wrong = [...new Set(others.map(String))].slice(0, CHOICES - 1);
  const shown = rng.shuffle([right, ...wrong]).join(', ');
  return { question: `Which of the numbers ${shown} is divisible by ${divisor}?`, right, wrong };
}

function sequence(rng: Random): QuestionDraft {
  const [start, step, growth] = [1 + rng.integer(30), 2 + rng.integer(12), rng.integer(4)];
  const terms = [start];
  for (let index = 0; index < 5; index++) terms.push(terms[index] + step + growth * index);
  const right = terms[5];
  return {
    question: `Which number continues the sequence ${terms.slice(0, 5).join(', ')}?`,
    right: String(right),
    wrong: [right + step, right - 1, right + 1, right + growth + 2].map(String),
  };
}

function weekday(rng: Random): QuestionDraft {
  const [today, later] = [rng.integer(7), 8 + rng.integer(200)];
  const right = DAYS[(today + later) % 7];
  return { question: `Today is ${DAYS[today]}. Which day is it in ${later} days?`, right, wrong: DAYS };
}

function alphabetical(rng: Random): QuestionDraft {
  const words = rng.shuffle(WORDS).slice(0, CHOICES);
  const [right, ...wrong] = words.toSorted();
  return { question: `Which of the words ${words.join(', ')} comes first in a dictionary?`, right, wrong };
}

function letters(rng: Random): QuestionDraft {
  const word = rng.choice(WORDS) + rng.choice(WORDS);
  const letter = rng.choice(Array.from(word));
  const count = word.split(letter).length - 1;
  return {
    question: `How many times does the letter ${letter} occur in ${word}?`,
    right: String(count),
    wrong: ['1', '2', '3', '4', '5', '6'],
  };
}

function product(rng: Random): QuestionDraft {
  const [a, b, c] = numbers(rng, 3, 30);
  const right = a * b + c;
  return {
    question: `What is ${a} * ${b} + ${c}?`,
    right: String(right),
    wrong: [a * (b + c), right + 10, right - 1, right + a].map(String),
  };
}

const configSchema = closed({
  kind: choiceSetting(KINDS, 'mixed', 'What kind of question is generated.'),
  split: splitSchema,
  data: dataFile(
    'File of questions instead of generated ones: .jsonl, .json or .parquet in the form of MetaMathQA (query, response), GSM8K (question, answer with ####) or MMLU (question, choices, answer).',
  ),
});

const optionsSchema = closed({
  ...questionOptions('The right answer; a letter with choices.'),
  choices: Type.Optional(
    Type.Array(Type.String({ minLength: 1 }), {
      minItems: 2,
      maxItems: LETTERS.length,
      description: 'Choices of the pinned question.',
    }),
  ),
});

type StaticQaConfig = Static<typeof configSchema>;
type StaticQaOptions = Static<typeof optionsSchema>;

export type StaticQaState = {
  readonly item: { readonly question: string; readonly choices: readonly string[]; readonly answer: string };
  readonly given: { readonly text: string; readonly right: boolean } | null;
};

export const staticQa: Environment<StaticQaConfig, StaticQaState> = {
  spec: {
    id: 'StaticQA-v0',
    title: 'Single-turn question answering',
    description: [
      'One question, one answer: 1 for a right one, 0 for a wrong one.',
      '',
      'A multiple-choice question is answered with a letter or with the text of the choice. Other answers are compared in lower case and without white space, and by value where both are numbers.',
      '',
      'Questions are generated (word problems, or multiple choice about numbers, words and days), or are records of a data file.',
    ].join('\n'),
    tags: ['question answering', 'one step', 'text'],
    configSchema,
    optionsSchema,
    presets: Object.fromEntries(KINDS.map(kind => [kind, { kind }])),
    ...MARKED_QUESTION,
    maxEpisodeSteps: 1,
    ends: RIGHT_OR_WRONG,
    exampleAction: 'B',
    history: [{ version: 0, change: 'First version.' }],
  },

  describe: () => ({
    instruction: 'Answer the question. You have one try.',
    actionFormat: 'the bare answer; the letter of the choice where there are choices',
  }),

  observationSpaces({ data }) {
    const of = words([data]);
    return {
      text: of(MAX_QUESTION_LENGTH + MAX_ANSWER_LENGTH),
      structured: dict({
        question: of(MAX_QUESTION_LENGTH),
        choices: list(of(MAX_QUESTION_LENGTH)),
        given: orNull(dict({ text: of(MAX_ANSWER_LENGTH), right: FLAG })),
      }),
    };
  },

  async reset(config, rng, options) {
    return { item: await chooseItem(config, rng, options), given: null };
  },

  step(state, action) {
    const text = typeof action === 'number' ? String(action) : action;
    const valid = typeof text === 'string' && text.trim() !== '' && text.length <= MAX_ANSWER_LENGTH;
    if (!valid || state.given) {
      const right = state.given?.right ?? false;
      return unchanged(state, valid, state.given && { success: right, ended_by: rightOrWrong(right) });
    }
    const right = isRight(state.item, text);
    return {
      state: { ...state, given: { text, right } },
      reward: right ? 1 : 0,
      terminated: true,
      info: stepInfo(right, true, true, rightOrWrong(right)),
    };
  },

  observe({ item, given }, format) {
    const { question, choices } = item;
    if (format === 'structured') return { question, choices, given };
    const lines = [question, ...choices.map((choice, index) => `${LETTERS[index]}. ${choice}`)];
    if (given) lines.push(`${given.text} is ${given.right ? 'right' : 'wrong'}.`);
    return lines.join('\n');
  },

  references: {
    oracle: {
      title: 'The label',
      plan: ({ item, given }) => (given ? [] : [item.answer]),
    },
    random: {
      title: 'A random choice, or a random whole number from 0 to 99',
      plan: ({ item, given }, _count, rng) => {
        if (given) return [];
        const { length } = item.choices;
        return [length > 0 ? LETTERS[rng.integer(length)] : String(rng.integer(100))];
      },
    },
  },
};

async function chooseItem(config: StaticQaConfig, rng: Random, options: StaticQaOptions): Promise<Item> {
  const { question, answer, choices = [], index } = options;
  if (question !== undefined && answer !== undefined) {
    if (choices.length === 0) return { question, answer, choices };
    const letter = answer.trim().toUpperCase();
    if (letter.length === 1 && LETTERS.slice(0, choices.length).includes(letter)) {
      return { question, answer: letter, choices };
    }
    throw new InvalidOptions('/answer', `must be a letter from A to ${LETTERS[choices.length - 1]}`);
  }
  if (question !== undefined) throw new InvalidOptions('/answer', 'question needs its answer next to it');
  if (answer !== undefined || choices.length > 0) {
    throw new InvalidOptions('/question', 'answer and choices need their question');
  }
  const { data, split, kind } = config;
  if (data !== undefined) {
    return chooseRecord({ path: data, read: readItem, split, key: item => item.question, index }, rng);
  }
  if (index !== undefined) throw new InvalidOptions('/index', 'index needs a data file in the config');
  return drawItem(kind, split, rng);
}

/**
 * True if an answer is right: a choice by letter or text; other answers by text, or by value where both are numbers.
 */
export function isRight(item: Item, answer: string): boolean {
  const given = strip(answer);
  if (item.choices.length > 0) return choiceOf(item.choices, given) === LETTERS.indexOf(item.answer);
  const wanted = strip(item.answer);
  if (fold(given) === fold(wanted)) return true;
  const [a, b] = [numberOf(given), numberOf(wanted)];
  return a !== null && a === b;
}

/** The answer without a leading "the answer is" and a final period. */
function strip(answer: string): string {
  return answer
    .trim()
    .replace(/^(?:the )?(?:correct )?answer(?: is)?\s*:?\s*/i, '')
    .replace(/\.$/, '')
    .trim();
}

function fold(text: string): string {
  return text.toLowerCase().replaceAll(/\s+/g, '');
}

function numberOf(text: string): number | null {
  const bare = text.replaceAll(/[$€£%,\s]/g, '');
  return /^[-+]?(?:\d+(?:\.\d*)?|\.\d+)$/.test(bare) ? Number(bare) : null;
}

/** The choice that an answer such as `B`, `(b)`, `B) text` or `text` names, or −1. */
function choiceOf(choices: readonly string[], given: string): number {
  const byText = choices.findIndex(choice => fold(strip(choice)) === fold(given));
  if (byText >= 0) return byText;
  const [, letter, rest] = /^\(?([A-J])(?:[).:](.*))?$/is.exec(given) ?? [];
  if (letter === undefined) return -1;
  const index = LETTERS.indexOf(letter.toUpperCase());
  if (index >= choices.length) return -1;
  return rest?.trim() && fold(rest.trim()) !== fold(strip(choices[index])) ? -1 : index;
}

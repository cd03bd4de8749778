import type { Random } from '../../../shared/random.ts';
import { drawWordProblem } from '../core/datasets/word-problems.ts';
import { isInSplit, type Split } from '../core/splits.ts';
import { type Item, LETTERS } from './records.ts';

export const KINDS = ['word_problem', 'multiple_choice', 'mixed'] as const;
export type QuestionKind = (typeof KINDS)[number];

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
  /** Wrong choices, more than enough and none equal to the right one. */
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

/** A question of the split; the split is decided by the question's text. */
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
    if (choices.length === CHOICES && isInSplit(question, split)) {
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

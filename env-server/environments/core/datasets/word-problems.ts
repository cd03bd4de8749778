import type { Random } from '../../../../shared/random.ts';
import { Type } from '../../../../shared/schema/type.ts';
import type { EnvironmentSpec } from '../environment.ts';
import { anyText, LINES, type Space, text } from '../spaces.ts';
import { isInSplit, type Split } from '../splits.ts';

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

export interface WordProblem {
  readonly question: string;
  /** Worked steps, without the final answer. */
  readonly steps: string;
  readonly answer: number;
}

const NAMES = [
  'Amara', 'Bruno', 'Chen', 'Daria', 'Elif', 'Farid', 'Greta', 'Hugo', 'Ines', 'Jonas', 'Kofi', 'Lena',
  'Mateo', 'Nadia', 'Oskar', 'Priya', 'Rosa', 'Samir', 'Tomas', 'Yuki',
]; // biome-ignore format: a list reads better in rows
const GOODS = [
  'pencils',
  'notebooks',
  'apples',
  'stamps',
  'marbles',
  'candles',
  'tickets',
  'seedlings',
  'buttons',
  'postcards',
];
const PLACES = ['the library', 'the harbour', 'the old mill', 'the market', 'the museum', 'the lake'];
const MAKERS = ['bakery', 'workshop', 'pottery', 'printing shop', 'weaving mill'];

const between = (rng: Random, low: number, high: number): number => low + rng.integer(high - low + 1);

/** Generators, one for each kind of problem. Every answer is a non-negative integer. */
const KINDS: readonly ((rng: Random) => WordProblem)[] = [
  shopping,
  sharing,
  journey,
  ages,
  production,
  discount,
  saving,
  fence,
  mixture,
  average,
  recipe,
  puzzle,
];

/** A word problem of the split; the question's text decides the split. */
export function drawWordProblem(rng: Random, split: Split): WordProblem {
  for (;;) {
    const problem = rng.choice(KINDS)(rng);
    if (isInSplit(() => problem.question, split)) return problem;
  }
}

function shopping(rng: Random): WordProblem {
  const [first, second] = rng.shuffle(GOODS);
  const [a, b] = [between(rng, 2, 9), between(rng, 2, 9)];
  const [p, q] = [between(rng, 2, 12), between(rng, 2, 12)];
  const total = a * p + b * q;
  const paid = Math.ceil((total + 1) / 50) * 50;
  return {
    question: `${rng.choice(NAMES)} buys ${a} ${first} at $${p} each and ${b} ${second} at $${q} each, and pays with $${paid}. How many dollars of change are due?`,
    steps: `The ${first} cost ${a} * ${p} = ${a * p} and the ${second} cost ${b} * ${q} = ${b * q}. Together that is ${total}, so the change is ${paid} - ${total} = ${paid - total}.`,
    answer: paid - total,
  };
}

function sharing(rng: Random): WordProblem {
  const [friends, each, left] = [between(rng, 3, 9), between(rng, 4, 15), between(rng, 1, 20)];
  const goods = rng.choice(GOODS);
  const total = friends * each + left;
  return {
    question: `${rng.choice(NAMES)} has ${total} ${goods}, keeps ${left} of them and shares the rest equally among ${friends} friends. How many ${goods} does each friend get?`,
    steps: `${total} - ${left} = ${friends * each} are shared, which is ${friends * each} / ${friends} = ${each} each.`,
    answer: each,
  };
}

function journey(rng: Random): WordProblem {
  const [v, w] = [between(rng, 4, 18) * 5, between(rng, 4, 18) * 5];
  const [h, k] = [between(rng, 2, 5), between(rng, 1, 4)];
  const rest = between(rng, 10, 90);
  const done = v * h + w * k;
  return {
    question: `A bus drives for ${h} hours at ${v} km/h and then for ${k} hours at ${w} km/h. The whole way to ${rng.choice(PLACES)} is ${done + rest} km. How many kilometres are left?`,
    steps: `It has driven ${v} * ${h} + ${w} * ${k} = ${done} km. ${done + rest} - ${done} = ${rest} km are left.`,
    answer: rest,
  };
}

function ages(rng: Random): WordProblem {
  const [older, younger] = rng.shuffle(NAMES);
  const [age, gap, later] = [between(rng, 5, 40), between(rng, 2, 25), between(rng, 2, 15)];
  const sum = 2 * age + gap + 2 * later;
  return {
    question: `${older} is ${gap} years older than ${younger}, who is ${age} now. What will the sum of their ages be in ${later} years?`,
    steps: `${older} is ${age} + ${gap} = ${age + gap}. In ${later} years they are ${age + later} and ${age + gap + later}, together ${sum}.`,
    answer: sum,
  };
}

function production(rng: Random): WordProblem {
  const [rate, hours, days] = [between(rng, 6, 40), between(rng, 4, 9), between(rng, 2, 7)];
  const spoilt = between(rng, 1, rate);
  const made = rate * hours * days;
  return {
    question: `A ${rng.choice(MAKERS)} makes ${rate} pieces an hour and works ${hours} hours a day. In ${days} days ${spoilt} pieces are spoilt. How many good pieces are there?`,
    steps: `${rate} * ${hours} * ${days} = ${made} pieces are made, and ${made} - ${spoilt} = ${made - spoilt} are good.`,
    answer: made - spoilt,
  };
}

function discount(rng: Random): WordProblem {
  const [price, percent, count] = [between(rng, 2, 15) * 20, between(rng, 1, 9) * 5, between(rng, 2, 6)];
  const off = (price * percent) / 100;
  return {
    question: `A chair costs $${price}. During a sale it is ${percent}% cheaper. How many dollars do ${count} chairs cost in the sale?`,
    steps: `The discount is ${price} * ${percent} / 100 = ${off}, so a chair costs ${price - off} and ${count} chairs cost ${count * (price - off)}.`,
    answer: count * (price - off),
  };
}

function saving(rng: Random): WordProblem {
  const [start, weekly, weeks] = [between(rng, 10, 90), between(rng, 5, 25), between(rng, 3, 12)];
  const spent = between(rng, 5, weekly * weeks);
  const answer = start + weekly * weeks - spent;
  return {
    question: `${rng.choice(NAMES)} has $${start}, saves $${weekly} every week for ${weeks} weeks and then spends $${spent}. How many dollars remain?`,
    steps: `Savings grow by ${weekly} * ${weeks} = ${weekly * weeks} to ${start + weekly * weeks}. ${start + weekly * weeks} - ${spent} = ${answer}.`,
    answer,
  };
}

function fence(rng: Random): WordProblem {
  const [length, width, cost] = [between(rng, 5, 40), between(rng, 3, 30), between(rng, 2, 15)];
  const around = 2 * (length + width);
  return {
    question: `A garden is ${length} m long and ${width} m wide. A fence around it costs $${cost} a metre. How many dollars does the fence cost?`,
    steps: `The garden measures 2 * (${length} + ${width}) = ${around} m around, so the fence costs ${around} * ${cost} = ${around * cost}.`,
    answer: around * cost,
  };
}

function mixture(rng: Random): WordProblem {
  const [a, b, unit] = [between(rng, 1, 7), between(rng, 1, 7), between(rng, 3, 20)];
  const total = (a + b) * unit;
  return {
    question: `Red and blue paint are mixed in the ratio ${a}:${b} to make ${total} litres. How many litres of red paint are needed?`,
    steps: `There are ${a} + ${b} = ${a + b} parts of ${total} / ${a + b} = ${unit} litres, so ${a} * ${unit} = ${a * unit} litres are red.`,
    answer: a * unit,
  };
}

function average(rng: Random): WordProblem {
  const count = between(rng, 2, 5);
  const mean = between(rng, 50, 90);
  const wanted = mean + between(rng, 1, 3);
  const next = wanted * (count + 1) - mean * count;
  return {
    question: `After ${count} tests ${rng.choice(NAMES)} has a mean of ${mean} points. How many points in the next test raise the mean to ${wanted}?`,
    steps: `So far there are ${count} * ${mean} = ${count * mean} points; ${count + 1} tests with a mean of ${wanted} need ${wanted * (count + 1)}. The difference is ${next}.`,
    answer: next,
  };
}

function recipe(rng: Random): WordProblem {
  const [people, grams, factor] = [between(rng, 2, 6), between(rng, 3, 20) * 10, between(rng, 2, 6)];
  const [guests, flour] = [people * factor, people * grams];
  const had = between(rng, 1, grams);
  return {
    question: `A recipe for ${people} people needs ${flour} g of flour. ${rng.choice(NAMES)} cooks for ${guests} people and already has ${had} g. How many grams of flour are missing?`,
    steps: `${guests} people are ${guests} / ${people} = ${factor} times as many and need ${flour * factor} g. ${flour * factor} - ${had} = ${flour * factor - had} g are missing.`,
    answer: flour * factor - had,
  };
}

function puzzle(rng: Random): WordProblem {
  const [number, plus, times] = [between(rng, 2, 60), between(rng, 2, 40), between(rng, 2, 9)];
  const result = (number + plus) * times;
  return {
    question: `${rng.choice(NAMES)} thinks of a number, adds ${plus} and multiplies the sum by ${times}. The result is ${result}. What is the number?`,
    steps: `Going back, ${result} / ${times} = ${number + plus}, and ${number + plus} - ${plus} = ${number}.`,
    answer: number,
  };
}

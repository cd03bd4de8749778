import { join } from 'node:path';
import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import { splitOf } from '../core/splits.ts';
import { drawItem, isRight, readItem, staticQa } from './staticqa.ts';

const play = playing(staticQa);

t.test('choices are named by letter or text', async t => {
  const item = { question: 'Which?', choices: ['red', 'dark blue', 'Amber.', 'a'], answer: 'B' };
  for (const answer of [
    'B',
    'b',
    '(B)',
    'B.',
    'B) dark blue',
    'Dark Blue',
    'The answer is: B',
    'Answer: b',
  ]) {
    t.equal(isRight(item, answer), true, answer);
  }
  for (const answer of ['A', 'C', 'B) red', 'blue', 'E', '', 'a', 'B or C']) {
    t.equal(isRight(item, answer), false, answer);
  }
  t.equal(isRight({ ...item, answer: 'D' }, 'a'), true, 'the text of a choice goes before its letter');
});

t.test('numbers are compared by value, other texts without case and space', async t => {
  const item = (answer: string) => ({ question: 'How many?', choices: [], answer });
  t.equal(isRight(item('1,234'), '$1234.00'), true);
  t.equal(isRight(item('12'), '12.5'), false);
  t.equal(isRight(item('x + 1'), 'X+1'), true);
  t.equal(isRight(item('x + 1'), ''), false);
  t.equal(isRight(item('0'), ' '), false);
});

t.test('records of MetaMathQA, GSM8K and MMLU are recognized by their fields', async t => {
  t.same(readItem({ query: 'q', response: 'The answer is: 3' }), { question: 'q', choices: [], answer: '3' });
  t.same(readItem({ question: 'q', answer: '2+1=<<2+1=3>>3\n#### 3' }), {
    question: 'q',
    choices: [],
    answer: '3',
  });
  const choices = ['w', 'x', 'y', 'z'];
  t.same(readItem({ question: 'q', choices, answer: 2 }), { question: 'q', choices, answer: 'C' });
  t.same(readItem({ question: 'q', choices, answer: 'D' }), { question: 'q', choices, answer: 'D' });
  t.throws(() => readItem({ question: 'q', answer: '3' }), { name: 'InvalidField', field: 'answer' });
  t.throws(() => readItem({ question: 'q', choices, answer: 4 }), { name: 'InvalidField', field: 'answer' });
  t.throws(() => readItem({ question: 'q', choices: ['w', 1], answer: 0 }), {
    name: 'InvalidField',
    field: 'choices[1]',
  });
  t.throws(() => readItem({ choices, answer: 0 }), { name: 'InvalidField', field: 'question' });
});

t.test('a data file is drawn from, a wrong row is named', async t => {
  const folder = t.testdir({
    'good.jsonl': '{"question":"q0","answer":"#### 5"}\n{"question":"q1","choices":["a","b"],"answer":1}\n',
    'bad.jsonl': '{"question":"q0","answer":"5"}\n',
  });
  const state = await play.reset({ data: join(folder, 'good.jsonl') }, { index: 1 });
  t.equal(play.text(state), 'q1\nA. a\nB. b');
  t.match(await play.step(state, 'b'), { reward: 1, terminated: true, info: { success: true } });
  t.match(await play.step(state, 'A'), { reward: 0, terminated: true, info: { success: false } });
  await t.rejects(play.reset({ data: join(folder, 'bad.jsonl') }), { message: /row 1: field answer/ });
});

t.test('generated multiple choice has one right choice of four', async t => {
  const rng = Random.fromSeed(4);
  for (let count = 0; count < 1500; count++) {
    const { question, choices, answer } = drawItem('multiple_choice', 'train', rng);
    if (splitOf(question) !== 'train' || new Set(choices).size !== 4) t.fail(`${question} ${choices}`);
    const right = choices['ABCD'.indexOf(answer)];
    const [, terms] = /sequence ([\d, ]+)\?/.exec(question) ?? [];
    const [, sum] = /^What is (.*)\?/.exec(question) ?? [];
    const [, letter, word] = /the letter (.) occur in (\w+)/.exec(question) ?? [];
    const [, divisor] = /divisible by (\d+)/.exec(question) ?? [];
    if (sum && Number(new Function(`return ${sum}`)()) !== Number(right)) t.fail(question);
    if (letter && Array.from(word).filter(c => c === letter).length !== Number(right)) t.fail(question);
    if (divisor && choices.filter(c => Number(c) % Number(divisor) === 0).join() !== right) t.fail(question);
    if (terms) {
      const values = [...terms.split(', ').map(Number), Number(right)];
      const steps = values.slice(1).map((value, index) => value - values[index]);
      const growth = steps.slice(1).map((step, index) => step - steps[index]);
      if (new Set(growth).size !== 1) t.fail(`${question} ${right}`);
    }
  }
  t.pass('1500 questions');
});

t.test('a question can be pinned', async t => {
  const state = await play.reset({}, { question: 'Which?', choices: ['x', 'y'], answer: 'b' });
  t.match(await play.finish(state, 'oracle', 1), { success: true, total: 1 });
  const wrong: JsonObject[] = [
    { question: 'Which?' },
    { answer: 'b' },
    { question: 'Which?', choices: ['x', 'y'], answer: 'C' },
    { index: 0 },
  ];
  for (const options of wrong) {
    await t.rejects(play.reset({}, options), { name: 'InvalidOptions' });
  }
});

t.test('keeps the contract', async t => checkContract(t, staticQa));

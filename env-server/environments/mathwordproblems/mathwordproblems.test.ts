import { join } from 'node:path';
import t from 'tap';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import { golden } from '../../../test/golden.test-data.ts';
import { labelOf, mathWordProblems } from './mathwordproblems.ts';

const play = playing(mathWordProblems);

interface Golden {
  episodes: {
    response: string;
    label: string;
    steps: {
      action: string;
      reward: number;
      done: boolean;
      info: { action_is_valid: boolean; success: boolean };
    }[];
  }[];
}

t.test('labels, rewards and flags are the golden ones', async t => {
  for (const episode of golden<Golden>('metamathqa_steps.json').episodes) {
    t.equal(labelOf(episode.response), episode.label);
    let state = await play.reset({}, { question: 'What?', answer: episode.label });
    for (const wanted of episode.steps) {
      const { state: next, reward, terminated, info } = await play.step(state, wanted.action);
      t.same([reward, terminated], [wanted.reward, wanted.done]);
      t.match(info, wanted.info);
      state = next;
    }
  }
});

t.test('every retry halves the reward; an empty answer is invalid and counts', async t => {
  let state = await play.reset({}, { question: 'What?', answer: '7' });
  const flags: unknown[] = [];
  for (const action of ['6', ' ', '7']) {
    const { state: next, reward, info } = await play.step(state, action);
    flags.push([reward, info.action_is_valid, info.success, info.tries]);
    state = next;
  }
  t.same(flags, [
    [0, true, false, 1],
    [0, false, false, 2],
    [0.25, true, true, 3],
  ]);
  t.equal(play.text(state), 'What?\n7 is right.');
  t.match(await play.step(await play.reset({}, { question: 'What?', answer: '7' }), 7), { reward: 1 });
});

t.test('questions come from JSON Lines with an index, and a wrong row is named', async t => {
  const folder = t.testdir({
    'good.jsonl':
      '{"query":"1+1?","response":"Add. The answer is: 2","type":"x"}\n{"query":"2+2?","response":"The answer is: 4"}\n',
    'bad.jsonl': '{"query":"1+1?","response":"The answer is: 2"}\n{"query":"2+2?","response":"four"}\n',
  });
  const state = await play.reset({ data: join(folder, 'good.jsonl') }, { index: 1 });
  t.match(state, { question: '2+2?', answer: '4' });
  await t.rejects(play.reset({ data: join(folder, 'bad.jsonl') }), {
    name: 'InvalidConfig',
    pointer: '/data',
    message: /row 2: field response: .*The answer is:/,
  });
  await t.rejects(play.reset({ data: join(folder, 'good.jsonl') }, { index: 2 }), {
    message: /last index is 1/,
  });
  await t.rejects(play.reset({}, { index: 0 }), { message: /needs a data file/ });
  await t.rejects(play.reset({}, { question: 'What?' }), { message: /needs its answer/ });
});

t.test('generated questions of different splits never meet, and their steps lead to the answer', async t => {
  const seen = new Map<string, string>();
  for (const split of ['train', 'validation', 'test']) {
    for (let seed = 0; seed < 150; seed++) {
      const { question, answer } = await play.reset({ split }, {}, seed);
      if ((seen.get(question) ?? split) !== split) t.fail(`${question} is in two splits`);
      seen.set(question, split);
      if (!/^\d+$/.test(answer)) t.fail(`${question} has the answer ${answer}`);
    }
  }
  t.ok(seen.size > 400, `${seen.size} different questions`);
});

t.test('the oracle answers at once', async t => {
  t.match(await play.finish(await play.reset(), 'oracle', 5), { success: true, total: 1, steps: 1 });
});

t.test('keeps the contract', async t => checkContract(t, mathWordProblems));

import { join } from 'node:path';
import t from 'tap';
import type { JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import { golden } from '../../../test/golden.test-data.ts';
import { splitOf } from '../core/splits.ts';
import { countdown, evaluate, puzzleKey, score } from './countdown.ts';
import { solve, solveBySigns } from './solver.ts';

const play = playing(countdown);

interface Scoring {
  scoring: { action: string; nums: number[]; target: number; score: number }[];
  dataset_filter: { nums: number[]; target: number; kept: boolean }[];
}
const { scoring, dataset_filter } = golden<Scoring>('countdown_scoring.json');

t.test('keeps the contract', async t => checkContract(t, countdown));

t.test('scores are the golden ones, save what only Python reads', async t => {
  const pythonOnly = ['3 ** 2 + 5', '3.5 + 2', '7 % 2 + 1', '0x10 + 3'];
  for (const { action, nums, target, score: wanted } of scoring) {
    t.equal(score(action, nums, target).reward, pythonOnly.includes(action) ? 0 : wanted, action);
  }
});

t.test('the filter of signed sums is the golden one', async t => {
  for (const { nums, target, kept } of dataset_filter) {
    const sum = solveBySigns(nums, target);
    t.equal(sum !== undefined, kept);
    if (sum) t.equal(score(sum, nums, target).reward, 1, sum);
  }
});

t.test('expressions are parsed as arithmetic is written', async t => {
  for (const [text, value] of [
    ['1+2*3', 7],
    ['(1+2)*3', 9],
    ['8/4/2', 1],
    ['10-4-3', 3],
    ['-3 - -2', -1],
    ['2*-3', -6],
    ['+(4)', 4],
    [' ( ( 7 ) ) ', 7],
    ['1/0', Number.POSITIVE_INFINITY],
  ] as const) {
    t.equal(evaluate(text)?.value, value, text);
  }
  const wrong = [
    '',
    '1 2',
    '1+',
    '(1',
    '1)',
    '()',
    '2**3',
    '1.5',
    '1e3',
    '01',
    '7//2',
    '1_0',
    '１+2',
    'process.exit()',
  ];
  for (const text of [...wrong, '('.repeat(5000)]) t.equal(evaluate(text), undefined, text.slice(0, 20));
});

t.test('one answer ends the episode', async t => {
  const state = await play.reset({}, { nums: [3, 5, 2], target: 4 });
  t.equal(play.text(state), 'Numbers: 3 5 2\nTarget: 4');
  for (const [answer, reward, end] of [
    ['2+5-3', 1, 'right_answer'],
    ['2+5+3', 0.1, 'wrong_value'],
    ['2+2', 0, 'wrong_numbers'],
    ['5-(3/(2-2))', 0, 'unreadable'],
    ['2/(5-5)', 0, 'unreadable'],
    ['hello', 0, 'unreadable'],
  ] as const) {
    const result = await play.step(state, answer);
    t.same([result.reward, result.terminated, result.info.success], [reward, true, reward === 1], answer);
    t.equal(result.info.ended_by, end, answer);
  }
  const zero = await play.reset({}, { nums: [3, 2, 2], target: 4 });
  t.equal((await play.step(zero, '3/(2-2)')).reward, 0.1, 'right numbers that divide by zero');
  t.match(play.text((await play.step(zero, '3/(2-2)')).state), /Value: none/);
});

t.test('every generated puzzle has a solution within its limits, in its split', async t => {
  const configs: JsonObject[] = [
    {},
    { preset: 'four', split: 'test' },
    { operators: 'plus_minus', split: 'validation' },
  ];
  for (const config of configs) {
    for (let seed = 0; seed < 150; seed++) {
      const { nums, target } = await play.reset(config, {}, seed);
      if (target < 1 || target > 100 || nums.some(num => num < 1 || num > 99))
        t.fail(`limits: ${nums} ${target}`);
      if (config.split && splitOf(puzzleKey({ nums, target })) !== config.split) t.fail('split');
      const solution = config.operators ? solveBySigns(nums, target) : solve(nums, target);
      if (!solution || score(solution, nums, target).reward !== 1) t.fail(`${nums} ${target}: ${solution}`);
    }
    t.pass();
  }
});

t.test('the random player draws from the operators of the puzzles', async t => {
  const rng = Random.fromSeed(0);
  for (const [operators, drawn] of [
    ['all', '*+-/'],
    ['plus_minus', '+-'],
  ] as const) {
    const state = await play.reset({ operators, min_nums: 2, max_nums: 2 });
    const plans = Array.from({ length: 60 }, () => countdown.references.random.plan(state, 1, rng)[0]);
    t.same(new Set(plans.map(plan => plan.split(' ')[1])), new Set(drawn));
  }
});

t.test('the search finds solutions that need fractions, and says when there are none', async t => {
  t.equal(score(solve([3, 3, 8, 8], 24)!, [3, 3, 8, 8], 24).reward, 1);
  for (const [nums, target] of [
    [[5], 5],
    [[0, 7, 9, 9, 9], 0],
    [[1, 5, 5, 5], 24],
    [[3, 7, 11, 25, 50, 75], 952],
    [[75, 50, 2, 3, 8, 7], 812],
  ] as const) {
    const solution = solve(nums, target);
    t.ok(
      solution !== undefined && score(solution, nums, target).reward === 1,
      `${nums} ${target}: ${solution}`,
    );
  }
  t.equal(solve([1, 1], 5), undefined);
  t.equal(solve([1, 1, 1, 1, 1, 1], 100), undefined);
  t.equal(solve([2, 2], 5), undefined);
  t.ok((await play.finish(await play.reset({}, {}, 5), 'optimal', 1)).success);
});

t.test('puzzles come from a data file when one is named', async t => {
  const rows = [
    { nums: [3, 5, 2], target: 4 },
    { nums: [2, 3, 4], target: 24 },
  ];
  const data = join(t.testdir({ 'd.jsonl': rows.map(row => JSON.stringify(row)).join('\n') }), 'd.jsonl');
  t.match(await play.reset({ data }, { index: 1 }), rows[1]);
  const seen = new Set<number>();
  for (let seed = 0; seed < 30; seed++) seen.add((await play.reset({ data }, {}, seed)).target);
  t.same([...seen].sort(), [24, 4]);
  t.match(await play.reset({ data, operators: 'plus_minus' }, { index: 0 }), rows[0]);
  await t.rejects(play.reset({ data, operators: 'plus_minus' }, { index: 1 }), /rows 0 to 0/);
  await t.rejects(play.reset({}, { index: 1 }), /needs a data file/);
  await t.rejects(play.reset({}, { nums: [1] }), { name: 'InvalidOptions', pointer: '/target' });
  await t.rejects(play.reset({ min_nums: 4, max_nums: 3 }), { name: 'InvalidConfig', pointer: '/max_nums' });
});

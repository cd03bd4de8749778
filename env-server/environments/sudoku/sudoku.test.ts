import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { atOnce } from '../../../shared/slices.ts';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import { golden } from '../../../test/golden.test-data.ts';
import { splitOf } from '../core/splits.ts';
import { BLANK_SHARES, type Cells, countBlanks, isLegal, isSolved } from './board.ts';
import { generatePuzzle, puzzleKey, shufflePattern, solve } from './solver.ts';
import { parsePlacement, sudoku } from './sudoku.ts';

const play = playing(sudoku);

interface Golden {
  episodes: {
    grid_size: number;
    initial: number[][];
    solution: number[][];
    steps: {
      action: string;
      reward: number;
      done: boolean;
      valid: boolean;
      effective: boolean;
      success: boolean;
    }[];
  }[];
}

t.test('rewards and flags are the golden ones, in every spelling', async t => {
  for (const episode of golden<Golden>('sudoku_steps.json').episodes) {
    let state = await play.reset(
      { size: episode.grid_size, max_steps: 1000 },
      { puzzle: episode.initial, solution: episode.solution },
    );
    for (const wanted of episode.steps) {
      const { state: next, reward, terminated, info } = await play.step(state, wanted.action);
      t.same(
        [reward, terminated, info.action_is_valid, info.action_is_effective, info.success],
        [wanted.reward, wanted.done, wanted.valid, wanted.effective, wanted.success],
        wanted.action,
      );
      state = next;
    }
  }
});

t.test('every spelling of a placement is read', async t => {
  const wanted = { row: 2, col: 11, number: 7 };
  for (const text of [
    'place 7 at row 2 col 11',
    'Place 7 at row 2, column 11',
    'PLACE 7 AT (2,11)',
    'place 7 at 2,11',
    '7 at row 2 col 11',
    '7 at 2, 11',
    '7 at ( 2 , 11 )',
    '2,11,7',
    ' (2, 11, 7) ',
  ]) {
    t.same(parsePlacement(text), wanted, text);
  }
  for (const text of [
    '',
    '7',
    '2,11',
    '7 at row 2',
    'place at 2,11',
    '-1,2,3',
    '1.5,2,3',
    '1,2,3,4',
    'x1,2,3',
  ]) {
    t.equal(parsePlacement(text), null, text);
  }
});

/** Solutions of a puzzle, counted to two by plain backtracking: nothing of the solver's is used. */
function countSolutions(size: number, cells: Cells): number {
  const at = cells.indexOf(0);
  if (at < 0) return 1;
  let count = 0;
  for (let number = 1; number <= size && count < 2; number++) {
    if (isLegal(size, cells, at, number)) count += countSolutions(size, cells.with(at, number));
  }
  return count;
}

t.test('thousands of small puzzles have one solution by plain backtracking', async t => {
  for (const [size, seeds] of [
    [4, 1000],
    [9, 25],
  ]) {
    for (const share of Object.values(BLANK_SHARES)) {
      const blanks = Math.floor(share * size * size);
      for (let seed = 0; seed < seeds; seed++) {
        const { puzzle } = atOnce(generatePuzzle(size, blanks, Random.fromSeed(seed)));
        const found = countSolutions(size, puzzle);
        if (found !== 1) t.fail(`${size}×${size} with ${blanks} blanks, seed ${seed}: ${found} solutions`);
      }
    }
    t.pass(`${size}×${size}`);
  }
});

t.test('generated puzzles have the asked number of blanks and one solution', async t => {
  for (const size of [4, 9, 16]) {
    for (const share of Object.values(BLANK_SHARES)) {
      const blanks = Math.floor(share * size * size);
      for (let seed = 0; seed < (size === 16 ? 3 : 150); seed++) {
        const { puzzle, solution } = atOnce(generatePuzzle(size, blanks, Random.fromSeed(seed)));
        const found = solve(size, puzzle, { limit: 2, maxNodes: 100_000 });
        if (countBlanks(puzzle) !== blanks) t.fail(`${countBlanks(puzzle)} blanks instead of ${blanks}`);
        if (!found.complete || found.solutions.length !== 1)
          t.fail(`${size}×${size} seed ${seed} is not unique`);
        if (found.solutions[0]?.join() !== solution.join())
          t.fail(`${size}×${size} seed ${seed} has another solution`);
      }
    }
    t.ok(isSolved(size, shufflePattern(size, Random.fromSeed(1))), 'the shuffled pattern is a full board');
  }
});

t.test('a large puzzle is made in parts', async t => {
  const making = generatePuzzle(16, Math.floor(BLANK_SHARES.hard * 256), Random.fromSeed(5));
  let parts = 1;
  let part = making.next();
  for (; !part.done; part = making.next()) parts++;
  t.ok(parts > 10, `${parts} parts`);
  t.same((await play.reset({ size: 16, difficulty: 'hard' }, {}, 5)).puzzle, part.value.puzzle);
});

t.test('the solver counts solutions', async t => {
  const empty = new Array(16).fill(0);
  t.equal(solve(4, empty, { limit: 1000, maxNodes: 100_000 }).solutions.length, 288, 'all 4×4 boards');
  t.equal(solve(4, empty.with(0, 1).with(1, 1), { limit: 2, maxNodes: 100 }).solutions.length, 0);
});

t.test('puzzles of a split are of that split', async t => {
  for (const split of ['train', 'validation', 'test'] as const) {
    for (let seed = 0; seed < 20; seed++) {
      const { size, puzzle } = await play.reset({ split }, {}, seed);
      t.equal(splitOf(puzzleKey(size, puzzle)), split);
    }
  }
});

const PUZZLE = [
  [1, 0, 3, 4],
  [3, 4, 0, 2],
  [2, 1, 4, 0],
  [0, 3, 2, 1],
];

/** A puzzle with more than one solution, and one of them. */
const TWO_SOLUTIONS = {
  puzzle: [
    [0, 0, 3, 4],
    [3, 4, 0, 0],
    [0, 0, 4, 3],
    [4, 3, 0, 0],
  ],
  solution: [
    [1, 2, 3, 4],
    [3, 4, 1, 2],
    [2, 1, 4, 3],
    [4, 3, 2, 1],
  ],
};

t.test('a wrong number may be replaced, and nothing can be farmed', async t => {
  const { puzzle: open, solution } = TWO_SOLUTIONS;
  let state = await play.reset({ max_steps: 100 }, { puzzle: open, solution });
  const rewards: number[] = [];
  for (const action of ['1,1,2', '1,1,1', '1,1,1', '1,1,2', '1,1,1']) {
    const result = await play.step(state, action);
    rewards.push(result.reward);
    t.equal(result.info.action_is_valid, true);
    state = result.state;
  }
  t.same(rewards, [0.5, 0.5, 0, -0.5, 0.5]);
});

t.test('a cell earns the same by detours, so that a solved board returns most', async t => {
  const detour = { returned: 0, blanks: 0 };
  let state = await play.reset({ size: 9, difficulty: 'hard' }, {}, 3);
  const blanks = state.puzzle.flatMap((given, cell) => (given === 0 ? [cell] : []));
  for (const cell of blanks.slice(0, -1)) {
    const place = async (number: number) => {
      const spelled = `${Math.floor(cell / 9) + 1},${(cell % 9) + 1},${number}`;
      const { state: next, reward, info } = await play.step(state, spelled);
      if (!info.action_is_valid) return;
      detour.returned += reward;
      state = next;
    };
    const right = state.solution[cell];
    const wrong = [1, 2, 3, 4, 5, 6, 7, 8, 9].find(
      number => number !== right && isLegal(9, state.grid, cell, number),
    );
    if (wrong !== undefined) await place(wrong);
    await place(right);
    detour.blanks++;
  }
  t.equal(detour.blanks, blanks.length - 1);
  t.equal(detour.returned, blanks.length - 1, 'a point for each cell');
});

t.test('the start can be pinned, a board in play included, and conflicts are marked', async t => {
  const grid = PUZZLE.map(row => row.slice());
  grid[0][1] = 4;
  const state = await play.reset({}, { puzzle: PUZZLE, grid });
  t.match(play.text(state), '[1] *4* | [3] [4]');
  t.match(play.text(state), 'Empty cells: 3. Placements left: 8.');
  const { success, total } = await play.finish(state, 'optimal', 8);
  t.equal(success, true);
  t.equal(total, 13.5);
});

t.test('levels that make no puzzle are refused with a pointer', async t => {
  const empty = PUZZLE.map(row => row.map(() => 0));
  await t.rejects(play.reset({}, { puzzle: empty }), { name: 'InvalidOptions', pointer: '/puzzle' });
  await t.rejects(play.reset({}, { grid: PUZZLE }), { name: 'InvalidOptions', pointer: '/puzzle' });
  await t.rejects(play.reset({ size: 9 }, { puzzle: PUZZLE }), {
    name: 'InvalidOptions',
    pointer: '/puzzle',
  });
  await t.rejects(play.reset({}, { puzzle: PUZZLE, solution: PUZZLE }), {
    name: 'InvalidOptions',
    pointer: '/solution',
  });
  await t.rejects(play.reset({}, { puzzle: PUZZLE, grid: empty }), {
    name: 'InvalidOptions',
    pointer: '/grid',
  });
  await t.rejects(play.reset({}, { puzzle: [[1, 1, 0, 0], ...empty.slice(1)] }), {
    name: 'InvalidOptions',
    pointer: '/puzzle',
  });
});

t.test('the reference solves every size within the budget, which ends the episode', async t => {
  for (const size of [4, 9, 16]) {
    const state = await play.reset({ size, difficulty: 'medium' }, {}, 5);
    const blanks = countBlanks(state.puzzle);
    const { success, steps, total } = await play.finish(state, 'optimal', state.maxSteps);
    t.same([success, steps, total], [true, blanks, blanks + 10]);
  }
  let state = await play.reset({}, {}, 1);
  for (let step = 1; step <= state.maxSteps; step++) {
    const result = await play.step(state, 'nonsense');
    t.equal(result.truncated, step === state.maxSteps);
    state = result.state;
  }
});

t.test('two swapped wrong numbers are untangled by the reference', async t => {
  const { puzzle, solution } = TWO_SOLUTIONS;
  const grid = puzzle.map(row => row.slice());
  grid[0] = [2, 0, 3, 4];
  grid[2] = [0, 2, 4, 3];
  const state = await play.reset({}, { puzzle, solution, grid });
  t.equal((await play.finish(state, 'optimal', 16)).success, true);
});

t.test('keeps the contract', async t => checkContract(t, sudoku, { episodes: 1, steps: 12 }));

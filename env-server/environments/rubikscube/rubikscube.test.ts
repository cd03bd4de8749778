import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { atOnce } from '../../../shared/slices.ts';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import { golden } from '../../../test/golden.test-data.ts';
import { ACTIONS, COLORS, isSolved, SOLVED, TURNS, turn } from './cube.ts';
import { rubiksCube, solve } from './rubikscube.ts';

const play = playing(rubiksCube);

interface Golden {
  moves: Record<string, number[]>;
  episodes: {
    scramble: string[];
    state0: number[];
    steps: { action: string; state: number[]; reward: number; done: boolean; success: boolean }[];
  }[];
}

const DATA = golden<Golden>('rubikscube_moves.json');
const colors = (stickers: number[]) => stickers.map(color => COLORS[color]).join('');

t.test('turns and episodes are the golden ones', async t => {
  t.same(Object.fromEntries(TURNS.map(({ name, from }) => [name, from])), DATA.moves);
  t.same(ACTIONS.names, Object.keys(DATA.moves));
  for (const episode of DATA.episodes) {
    let state = await play.reset({}, { scramble: episode.scramble });
    t.equal(state.cube, colors(episode.state0));
    for (const wanted of episode.steps) {
      const { state: next, reward, terminated, info } = await play.step(state, wanted.action);
      t.same(
        [next.cube, reward, terminated, info.success],
        [colors(wanted.state), wanted.reward, wanted.done, wanted.success],
      );
      state = next;
    }
  }
});

t.test('a cube held another way is solved', async t => {
  const held = turn(turn(SOLVED, ACTIONS.indexOf('U')), ACTIONS.indexOf("D'"));
  t.not(held, SOLVED);
  t.equal(isSolved(held), true);
});

t.test('solutions are correct and never longer than the scramble', async t => {
  const rng = Random.fromSeed(3);
  for (let length = 1; length <= 8; length++) {
    for (let count = 0; count < 3; count++) {
      let cube = SOLVED;
      for (let turns = 0; turns < length; turns++) cube = turn(cube, rng.integer(12));
      const solution = atOnce(solve(cube));
      t.ok(solution && solution.length <= length && isSolved(solution.reduce(turn, cube)), `${length} turns`);
    }
  }
});

t.test('solutions are shortest', async t => {
  const distance = new Map([[SOLVED, 0]]);
  let layer = [SOLVED];
  for (let depth = 1; depth <= 3; depth++) {
    const next: string[] = [];
    for (const cube of layer) {
      for (let index = 0; index < TURNS.length; index++) {
        const turned = turn(cube, index);
        if (distance.has(turned)) continue;
        distance.set(turned, isSolved(turned) ? 0 : depth);
        next.push(turned);
      }
    }
    layer = next;
  }
  for (const [cube, most] of distance) {
    const { length } = atOnce(solve(cube)) ?? { length: Infinity };
    if (length > most) t.fail(`${length} turns instead of ${most}`);
  }
  const lengths = [...distance.keys()].map(cube => atOnce(solve(cube))?.length);
  t.ok(lengths.filter(length => length === 1).length > 6);
});

t.test('a search that finds nothing is given up, after many parts', async t => {
  const searching = solve(Random.fromSeed(3).shuffle(Array.from(SOLVED)).join(''));
  let parts = 1;
  let part = searching.next();
  for (; !part.done; part = searching.next()) parts++;
  t.equal(part.value, null);
  t.ok(parts > 20, `${parts} parts`);
});

t.test('stickers can be pinned; what is not a cube is refused', async t => {
  const cube = turn(turn(SOLVED, 3), 8);
  t.equal((await play.reset({}, { stickers: cube })).cube, cube);
  for (const stickers of ['W'.repeat(24), SOLVED.replace('WWWW', 'WWWO')]) {
    await t.rejects(play.reset({}, { stickers }), { name: 'InvalidOptions', pointer: '/stickers' });
  }
  await t.rejects(play.reset({}, { stickers: SOLVED, scramble: ['U'] }), { name: 'InvalidOptions' });
  await t.rejects(play.reset({}, { scramble: ['X'] }), { name: 'InvalidOptions' });
});

t.test('random scrambles are never solved; the reference solves them for 1', async t => {
  for (let seed = 0; seed < 40; seed++) {
    const state = await play.reset({ scramble_length: 2 }, {}, seed);
    t.notOk(isSolved(state.cube));
    t.match(await play.finish(state, 'optimal', 20), { success: true, total: 1 });
  }
});

t.test('faces are shown as letters, and as a net', async t => {
  const state = await play.reset({}, { scramble: ['U'] });
  t.equal(
    play.text(state),
    [
      'Up: W W / W W',
      'Left: G G / O O',
      'Front: R R / G G',
      'Right: B B / R R',
      'Back: O O / B B',
      'Down: Y Y / Y Y',
    ].join('\n'),
  );
  t.equal(
    rubiksCube.observe(state, 'grid'),
    ['    W W', '    W W', 'G G R R B B O O', 'O O G G R R B B', '    Y Y', '    Y Y'].join('\n'),
  );
});

t.test('keeps the contract', async t => checkContract(t, rubiksCube));

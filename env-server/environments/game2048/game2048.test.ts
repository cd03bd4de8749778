import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import { golden } from '../../../test/golden.test-data.ts';
import { ACTIONS, game2048, openDirections, rewardOf, slide } from './game2048.ts';

const play = playing(game2048);

interface Golden {
  boards: {
    grid: number[][];
    valid: number[];
    terminal: boolean;
    moves: Record<string, { grid: number[][]; merge_reward: number; moved: boolean; log_reward: number }>;
  }[];
}

t.test('slides and rewards are the golden ones', async t => {
  for (const board of golden<Golden>('game2048_moves.json').boards) {
    const tiles = board.grid.flat();
    t.same(openDirections(4, tiles), board.valid);
    t.equal(openDirections(4, tiles).length === 0, board.terminal);
    for (const [name, wanted] of Object.entries(board.moves)) {
      const found = slide(4, tiles, ACTIONS.indexOf(name));
      t.same(
        [found.tiles, found.merged, found.moved],
        [wanted.grid.flat(), wanted.merge_reward, wanted.moved],
      );
      t.ok(Math.abs(rewardOf(found.merged) - wanted.log_reward) < 1e-12);
    }
  }
});

const GRID = [
  [2, 2, 4, 8],
  [0, 0, 0, 0],
  [0, 0, 0, 0],
  [16, 32, 64, 128],
];

t.test('a move adds one tile, a move that changes nothing adds none', async t => {
  const state = await play.reset({}, { grid: GRID, score: 100 });
  const left = await play.step(state, 'left');
  t.equal(left.reward, 0.1 * Math.log2(5));
  t.match(left.info, { score: 104, merged: 4, max_tile: 128, action_is_valid: true, success: false });
  t.same(left.info.rewards, { merges: left.reward, doubled: 0, refused: 0 }, 'a 4 is not the largest tile');
  t.equal(left.state.tiles.filter(tile => tile > 0).length, 8);
  t.same(left.state.tiles.slice(0, 3), [4, 4, 8]);

  const stuck = await play.reset({}, { grid: [[2, 4, 8, 16], ...GRID.slice(1, 3), [32, 64, 128, 256]] });
  for (const action of ['Left', 3, 'Jump', 4, null]) {
    const { state: next, reward, info } = await play.step(stuck, action);
    t.same([reward, info.action_is_valid, info.action_is_effective], [0, false, false]);
    t.same(info.rewards, { merges: 0, doubled: 0, refused: -1 });
    t.equal(next.tiles, stuck.tiles);
  }
});

t.test('new tiles are twos with the configured probability, on any empty cell', async t => {
  const rng = Random.fromSeed(7);
  const state = await play.reset({ p_two: 0.75 }, { grid: GRID });
  let twos = 0;
  const seen = new Set<number>();
  const tries = 4000;
  for (let index = 0; index < tries; index++) {
    const { tiles } = (await game2048.step(state, 'Left', rng)).state;
    const merged = slide(4, state.tiles, 3).tiles;
    const cell = tiles.findIndex((tile, at) => tile !== merged[at]);
    seen.add(cell);
    if (tiles[cell] === 2) twos++;
  }
  t.equal(seen.size, 9, 'all nine empty cells');
  t.ok(Math.abs(twos / tries - 0.75) < 0.03, `${twos / tries} twos`);
});

t.test('the game ends when nothing moves, won or lost', async t => {
  const nearly = [
    [1024, 1024, 8, 16],
    [4, 8, 16, 32],
    [8, 16, 32, 64],
    [16, 32, 64, 128],
  ];
  const state = await play.reset({ p_two: 1 }, { grid: nearly });
  const right = await play.step(state, 'Right');
  t.match(right, { terminated: true, info: { success: true, max_tile: 2048 } }, 'the 2 fills the last cell');
  t.same(right.info.rewards, { merges: right.reward, doubled: 1, refused: 0 });
  const lost = await play.reset({ win_tile: 4096, p_two: 1 }, { grid: nearly });
  t.match(await play.step(lost, 'Right'), { terminated: true, info: { success: false } });
});

t.test('a new tile that is the largest has not doubled it', async t => {
  const grid = [[2, 0, 0, 0], ...Array.from({ length: 3 }, () => [0, 0, 0, 0])];
  const { info } = await play.step(await play.reset({ p_two: 0 }, { grid }), 'Right');
  t.match(info, { max_tile: 4, rewards: { merges: 0, doubled: 0, refused: 0 } });
});

t.test('boards that cannot be played are refused', async t => {
  const full = [
    [2, 4, 2, 4],
    [4, 2, 4, 2],
    [2, 4, 2, 4],
    [4, 2, 4, 2],
  ];
  for (const grid of [
    full,
    GRID.slice(1),
    [[3, 0, 0, 0], ...GRID.slice(1)],
    [[1, 0, 0, 0], ...GRID.slice(1)],
  ]) {
    await t.rejects(play.reset({}, { grid }), { name: 'InvalidOptions', pointer: '/grid' });
  }
});

t.test('the heuristic goes far beyond random play', async t => {
  const small = await play.reset({ preset: 'small' }, {}, 3);
  const heuristic = await play.finish(small, 'heuristic', 400);
  const random = await play.finish(small, 'random', 400);
  t.ok(heuristic.total > 1.5 * random.total, `${heuristic.total} against ${random.total}`);
});

t.test('observation names rows, valid moves and score', async t => {
  const state = await play.reset({}, { grid: GRID });
  t.equal(
    play.text(state),
    '2 2 4 8\n0 0 0 0\n0 0 0 0\n16 32 64 128\nValid moves: Up, Right, Down, Left\nScore: 0',
  );
});

t.test('keeps the contract', async t => checkContract(t, game2048));

import { PNG } from 'pngjs';
import t from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { atOnce } from '../../../shared/slices.ts';
import { checkContract } from '../../../test/environment-contract.test-data.ts';
import { golden } from '../../../test/golden.test-data.ts';
import { resolveConfig, resolveOptions } from '../core/settings.ts';
import { splitOf } from '../core/splits.ts';
import { drawState, levelKey } from './level.ts';
import { ACTIONS, isSolved, type SokobanConfig, type SokobanState, WALL } from './rules.ts';
import { sokoban } from './sokoban.ts';
import { solve } from './solver.ts';

function start(config: JsonObject, options: JsonObject = {}, seed = 1): SokobanState {
  const resolved = resolveConfig(sokoban, config) as SokobanConfig;
  const rng = Random.fromSeed(seed);
  return options.layout === undefined
    ? atOnce(drawState(resolved, rng))
    : (sokoban.reset(resolved, rng, resolveOptions(sokoban, options)) as SokobanState);
}

/** Rows of symbols from the two number matrices of the golden files. */
function drawn(fixed: number[][], state: number[][]): string[] {
  return state.map((row, r) =>
    row.map((code, c) => (code === 5 && fixed[r][c] === 2 ? 'S' : '#_O√XP'[code])).join(''),
  );
}

interface Episodes {
  episodes: {
    kind: string;
    max_steps: number;
    room_fixed: number[][];
    room_state: number[][];
    obs: Record<string, string>;
    transitions: {
      action: string;
      player: [number, number];
      reward: number;
      done: boolean;
      success: boolean;
      effective: boolean;
      boxes_on_target: number;
      steps: number;
      grid: string;
    }[];
    final_obs: Record<string, string>;
  }[];
}

t.test('episodes are the golden ones, in every form', async t => {
  const forms = (state: SokobanState) => ({
    grid: sokoban.observe(state, 'grid'),
    coord: sokoban.observe(state, 'coord'),
    grid_coord: sokoban.observe(state, 'grid_coord'),
  });
  for (const episode of golden<Episodes>('sokoban_transitions.json').episodes) {
    let state = start({}, { layout: drawn(episode.room_fixed, episode.room_state) });
    t.same(forms(state), episode.obs);
    for (const wanted of episode.transitions) {
      const result = sokoban.step(state, wanted.action);
      state = result.state;
      t.ok(Math.abs(result.reward - wanted.reward) < 1e-9, `${result.reward} of ${wanted.reward}`);
      t.same(
        {
          player: [Math.floor(state.player / state.room.cols), state.player % state.room.cols],
          done: result.terminated || wanted.steps >= episode.max_steps,
          success: result.info.success,
          effective: result.info.action_is_effective,
          boxes_on_target: state.boxes_on_target,
          grid: sokoban.observe(state, 'grid'),
        },
        {
          player: wanted.player,
          done: wanted.done,
          success: wanted.success,
          effective: wanted.effective,
          boxes_on_target: wanted.boxes_on_target,
          grid: wanted.grid,
        },
      );
    }
    t.same(forms(state), episode.final_obs);
  }
});

t.test('actions are ids from 1 or names in any case; anything else changes nothing', async t => {
  const state = start({}, { layout: ['#####', '#PXO#', '#####'] });
  for (const right of [4, 'Right', 'rIGHT']) t.equal(sokoban.step(state, right).reward, 10.9);
  for (const wrong of [0, 5, 'push', null, [1], { id: 1 }] as Json[]) {
    const { state: after, reward, terminated, info } = sokoban.step(state, wrong);
    t.equal(after, state);
    t.same([reward, terminated, info.action_is_valid], [0, false, false]);
  }
});

t.test('boxes that start on targets count with the first action', async t => {
  const state = start({}, { layout: ['#####', '#P√_#', '#_XO#', '#####'] });
  t.equal(sokoban.step(state, 'Up').reward, 0.9);
  t.equal(sokoban.step(state, 'Right').reward, -0.1, 'pushed off before it was counted');
  const counted = sokoban.step(state, 'Up').state;
  t.equal(sokoban.step(counted, 'Right').reward, -1.1);
});

t.test('an unwalled layout ends at its edge', async t => {
  const state = start({}, { layout: ['PXO', '_X_', '__O'] });
  t.equal(sokoban.step(state, 'Up').state, state);
  t.equal(sokoban.step(state, 'Left').state, state);
  const below = sokoban.step(sokoban.step(state, 'Down').state, 'Right').state;
  t.equal(sokoban.observe(below, 'grid'), '_XO\n_PX\n__O');
  t.equal(sokoban.step(below, 'Right').state, below);
});

t.test('a custom vocabulary reaches observation, legend, vocabulary and layouts', async t => {
  const symbols = { wall: '%', box: 'crate' };
  const level = start({ symbols }, { layout: '%%%%%\n%@$.%\n%%%%%\n' });
  t.equal(sokoban.observe(level, 'text'), '%%%%%\n%PcrateO%\n%%%%%');
  const described = sokoban.describe(resolveConfig(sokoban, { symbols }) as SokobanConfig);
  t.equal(described.legend?.find(entry => entry.meaning === 'box')?.symbol, 'crate');
  t.ok(described.vocabulary?.includes('%'));
});

t.test('the visual preset shows the picture and describes it', async t => {
  const state = start({ preset: 'visual' }, { layout: ['#####', '#PXO#', '#####'] });
  const { width, height, data } = PNG.sync.read(
    Buffer.from(String(sokoban.observe(state, 'text')).replace('data:image/png;base64,', ''), 'base64'),
  );
  t.same([width, height], [200, 120]);
  t.ok(data.equals(sokoban.render(state).data));
  const described = sokoban.describe(resolveConfig(sokoban, { preset: 'visual' }) as SokobanConfig);
  t.ok(described.legend?.some(({ symbol, meaning }) => symbol === 'brown crate' && meaning === 'box'));
  t.equal(described.vocabulary, undefined);
});

t.test('layouts that are no room are refused', async t => {
  for (const [layout, message] of [
    [['#PXO', '#'], /row 1 has 1 cells/],
    [['#PXO?'], /unknown symbol "\?"/],
    [['#XO#'], /exactly one player, it has 0/],
    [['#PX#'], /no target/],
    [['#POO#X'], /1 boxes for 2 targets/],
  ] as const) {
    t.throws(() => start({}, { layout }), message);
  }
});

t.test('plans are shortest solutions, and empty when solved or stuck', async t => {
  interface Rooms {
    rooms: { room_fixed: number[][]; room_state: number[][]; shortest_solution: string[] | null }[];
  }
  const plan = (state: SokobanState) => sokoban.references.optimal.plan(state, 1000);
  for (const room of golden<Rooms>('sokoban_seed_rooms.json').rooms) {
    if (!room.shortest_solution) continue;
    const state = start({}, { layout: drawn(room.room_fixed, room.room_state) });
    const actions = await plan(state);
    t.equal(actions.length, room.shortest_solution.length);
    const end = actions.reduce((at, action) => sokoban.step(at, action).state, state);
    t.ok(isSolved(end));
    t.same(await plan(end), []);
  }
  t.same(await plan(start({}, { layout: ['#####', '#X__#', '#PO_#', '#####'] })), []);
});

t.test('a plan made a piece at a time is the plan made at once', async t => {
  let state = start({ preset: 'larger' }, {}, 7);
  const whole = await sokoban.references.optimal.plan(state, 1000);
  for (const action of whole) {
    t.same(await sokoban.references.optimal.plan(state, 1), [action]);
    state = sokoban.step(state, action).state;
  }
  t.ok(isSolved(state));
});

t.test('every generated room can be solved, in the requested number of steps', async t => {
  const solutionLength = ({ room, player, boxes }: SokobanState) =>
    atOnce(solve(room, player, boxes, { bytes: 2 ** 26 }))?.length ?? -1;
  for (const [config, rooms] of [
    [{ preset: 'simple' }, 1500],
    [{ preset: 'larger' }, 300],
    [{}, 200],
    [{ dim_room: [5, 9], num_boxes: 2 }, 200],
  ] as const) {
    for (let seed = 0; seed < rooms; seed++) {
      const state = start(config, {}, seed);
      if (solutionLength(state) <= 0) t.fail(`seed ${seed} of ${JSON.stringify(config)} has no solution`);
      if (isSolved(state) || state.boxes.some(box => state.room.cells[box] !== '_'))
        t.fail('a target is covered');
    }
    t.pass(`${rooms} rooms`);
  }
  for (let seed = 0; seed < 50; seed++) {
    const length = solutionLength(start({ preset: 'simple', min_solution: 4, max_solution: 6 }, {}, seed));
    t.ok(length >= 4 && length <= 6, String(length));
  }
});

t.test('a room that takes long is generated in slices, and is the same as in one go', async t => {
  const config = resolveConfig(sokoban, { dim_room: [10, 10], num_boxes: 6 }) as SokobanConfig;
  let sliced = 0;
  for (let seed = 1; sliced === 0 && seed < 100; seed++) {
    const drawing = sokoban.reset(config, Random.fromSeed(seed), {});
    if (!(drawing instanceof Promise)) continue;
    sliced++;
    t.same(await drawing, atOnce(drawState(config, Random.fromSeed(seed))));
  }
  t.equal(sliced, 1);
});

t.test('solution lengths are spread as the golden statistic says', async t => {
  interface Statistic {
    stats_SimpleSokoban: {
      mean_len: number;
      share_le_5: number;
      share_le_10: number;
      mean_floor_cells: number;
    };
  }
  const wanted = golden<Statistic>('sokoban_seed_rooms.json').stats_SimpleSokoban;
  const rooms = Array.from({ length: 4000 }, (_, seed) => start({ preset: 'simple' }, {}, 10_000 + seed));
  const lengths = rooms.map(
    ({ room, player, boxes }) => atOnce(solve(room, player, boxes, { bytes: 2 ** 26 }))!.length,
  );
  const mean = (values: number[]) => values.reduce((sum, x) => sum + x, 0) / values.length;
  const near = (got: number, want: number, tolerance: number) =>
    t.ok(Math.abs(got - want) < tolerance, `${got} of ${want}`);
  near(mean(lengths), wanted.mean_len, 0.22);
  near(mean(lengths.map(n => (n <= 5 ? 1 : 0))), wanted.share_le_5, 0.04);
  near(mean(lengths.map(n => (n <= 10 ? 1 : 0))), wanted.share_le_10, 0.008);
  near(mean(rooms.map(({ room }) => room.cells.replaceAll(WALL, '').length)), wanted.mean_floor_cells, 0.25);
});

t.test('the same seed makes the same room', async t => {
  t.same(start({}, {}, 10000), start({}, {}, 10000));
  t.equal(
    sokoban.observe(start({ preset: 'simple' }, {}, 10000), 'grid'),
    '######\n#_P__#\n#_X__#\n#__O_#\n#____#\n######',
    'on every machine and in every version',
  );
});

t.test('rooms of a split are of that split', async t => {
  for (const split of ['train', 'validation', 'test'] as const) {
    for (let seed = 0; seed < 60; seed++) {
      const { room, boxes } = start({ preset: 'simple', split }, {}, seed);
      t.equal(splitOf(levelKey({ ...room, boxes })), split);
    }
  }
});

t.test('rooms that cannot be are refused', async t => {
  t.throws(() => start({ dim_room: [4, 4], num_boxes: 4 }), { name: 'InvalidConfig' });
  t.throws(() => start({ min_solution: 9, max_solution: 3 }), /max_solution is smaller/);
});

t.test('ids and names agree', async t => {
  t.same(
    ['Up', 'Down', 'Left', 'Right'].map(name => ACTIONS.indexOf(name)),
    [1, 2, 3, 4].map(id => ACTIONS.indexOf(id)),
  );
});

t.test('keeps the contract', async t => checkContract(t, sokoban));

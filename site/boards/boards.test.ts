import { render } from 'preact-render-to-string';
import t from 'tap';
import { resolveConfig, resolveOptions } from '../../env-server/environments/core/settings.ts';
import { createRegistry } from '../../env-server/environments/registry.ts';
import type { Json } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';
import { boardKindOf, drawBoard } from './board.ts';
import { sokoban } from './sokoban.ts';
import { tiles2048 } from './tiles-2048.ts';

/** The board that each environment has. */
const KINDS: { readonly [id: string]: string } = {
  'Sokoban-v0': 'sokoban',
  'FrozenLake-v0': 'frozen-lake',
  'Bandit-v0': 'bandit',
  'Countdown-v0': 'countdown',
  'Sudoku-v0': 'sudoku',
  'Game2048-v0': 'tiles-2048',
  'RubiksCube-v0': 'cube',
  'MathWordProblems-v0': 'tried-question',
  'StaticQA-v0': 'choice-question',
  'Spatial-v0': 'spatial-room',
  'TextHousehold-v0': 'household',
  'SearchQA-v0': 'searched-question',
  'TextShop-v0': 'shop-page',
  'Lean-v1': 'proof',
  'Lean-v0': 'proof',
  'DeepCoder-v0': 'program',
};
const STEPS = 6;
const ANY = { seed: 5, config: {} };
const LEVELS: { readonly [id: string]: { seed: number; config: { [key: string]: Json } } } = {
  'Sudoku-v0': { seed: 5, config: { preset: '16x16-easy' } },
};

/** Structured states of an episode that a reference policy plays. */
async function statesOf(id: string): Promise<Json[]> {
  const environment = createRegistry().get(id);
  const { seed, config } = LEVELS[id] ?? ANY;
  const rng = Random.fromSeed(seed);
  let state = await environment.reset(resolveConfig(environment, config), rng, resolveOptions(environment));
  const states = [environment.observe(state, 'structured')];
  const [policy] = Object.values(environment.references ?? {});
  for (let step = 0; step < STEPS; step++) {
    const [action] = await policy.plan(state, 1, Random.fromSeed(1));
    if (action === undefined) break;
    const result = await environment.step(state, action, rng);
    state = result.state;
    states.push(environment.observe(state, 'structured'));
    if (result.terminated) break;
  }
  return states;
}

for (const [id, name] of Object.entries(KINDS)) {
  t.test(`${id} is drawn as ${name}, to look at and to play`, async t => {
    for (const state of await statesOf(id)) {
      t.equal(boardKindOf(state).name, name);
      const seen = render(drawBoard({ state }));
      t.ok(seen.length > 50);
      t.notMatch(seen, /undefined|NaN|\[object/);
      t.notMatch(seen, /<button/, 'nothing to click where nobody acts');
      t.notMatch(render(drawBoard({ state, act: () => {} })), /undefined|NaN|\[object/);
    }
  });
}

t.test('a state of unknown shape is shown as text, else as JSON', async t => {
  t.match(render(drawBoard({ state: { a: 1 }, text: 'a <b> c' })), /a &lt;b(>|&gt;) c/);
  t.match(render(drawBoard({ state: { a: 1 } })), /"a": 1|&quot;a&quot;: 1/);
  t.match(render(drawBoard({ state: 'only text' })), /only text/);
  t.match(render(drawBoard({ state: null })), /null/);
});

t.test('a box keeps its name while it is pushed, boxes of another level get new ones', async t => {
  const state = {
    rows: 3,
    cols: 5,
    walls: [[0, 0]] as [number, number][],
    targets: [[1, 4]] as [number, number][],
    boxes: [
      [1, 2],
      [2, 2],
    ] as [number, number][],
    player: [1, 1] as [number, number],
  };
  const memory = sokoban.track!(state, undefined);
  const pushed = {
    ...state,
    boxes: [
      [1, 3],
      [2, 2],
    ] as [number, number][],
  };
  t.same(sokoban.track!(pushed, { state, memory }), memory);
  const down = {
    ...state,
    boxes: [
      [2, 2],
      [2, 3],
    ] as [number, number][],
  };
  t.same(sokoban.track!(down, { state, memory }), [memory[1], memory[0]]);
});

t.test('tiles keep their names while they slide and merge; a jump renames all', async t => {
  const before = {
    grid: [
      [2, 2, 4],
      [0, 0, 0],
      [8, 0, 0],
    ],
    score: 0,
  };
  const memory = tiles2048.track!(before, undefined);
  const after = {
    grid: [
      [4, 4, 0],
      [0, 0, 2],
      [8, 0, 0],
    ],
    score: 4,
  };
  const { tiles, merged } = tiles2048.track!(after, { state: before, memory });
  const ids = (cells: readonly { id: number; cell: number; value: number }[]) =>
    cells.map(({ id, cell, value }) => [id, cell, value]).sort((a, b) => a[1] - b[1]);
  t.same(
    ids(merged),
    [
      [0, 0, 2],
      [1, 0, 2],
    ],
    'both slid to where they merged',
  );
  t.same(ids(tiles), [
    [9, 0, 4],
    [2, 1, 4],
    [10, 5, 2],
    [6, 6, 8],
  ]);
  const jump = tiles2048.track!(
    {
      grid: [
        [0, 0, 0],
        [0, 16, 0],
        [0, 0, 2],
      ],
      score: 4,
    },
    { state: before, memory },
  );
  t.same(jump.merged, []);
  t.ok(jump.tiles.every(({ born }) => born === undefined));
});

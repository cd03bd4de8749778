import type { Json } from '../../../shared/json.ts';
import {
  type Backdrop,
  backdrop,
  boardText,
  coordinate,
  coordinates,
  gridRows,
  inForm,
  rowCol,
} from '../core/drawing/grid.ts';
import type { ObservationFormat } from '../core/environment.ts';
import type { ObservationSpaces } from '../core/space.ts';
import { COUNT, cell as cellSpace, choice, dict, integers, list } from '../core/spaces.ts';
import { CLASSIC_MAPS, type FrozenLakeConfig } from './config.ts';
import { render } from './render.ts';
import { type FrozenLakeState, HOLE, isHole, type Lake } from './rules.ts';

export function observe(state: FrozenLakeState, format: ObservationFormat): Json {
  return inForm(state, format === 'text' ? state.lake.form : format, FORMS);
}

/** Codes of the cells of `grid`, in RAGEN's order. */
const PLAYER = 0;
const FROZEN = 1;
const HOLE_CODE = 2;
const GOAL = 3;
const PLAYER_IN_HOLE = 4;
const PLAYER_ON_GOAL = 5;

const STATUSES = ['playing', 'in_hole', 'on_goal'] as const;

export function observationSpaces({ map, size, symbols }: FrozenLakeConfig): ObservationSpaces {
  const side = CLASSIC_MAPS[map]?.length ?? size;
  const place = cellSpace(side, side);
  return {
    text: boardText(symbols),
    structured: dict({
      rows: COUNT,
      cols: COUNT,
      grid: integers(PLAYER, PLAYER_ON_GOAL, side, side),
      start: place,
      goal: place,
      player: place,
      holes: list(place),
      status: choice(...STATUSES),
      steps: COUNT,
    }),
  };
}

const FORMS = { grid, coord, structured, render };

const backdropOf = new WeakMap<Lake, Backdrop>();

/** The lake without its player. */
function emptyLake(lake: Lake): Backdrop {
  let known = backdropOf.get(lake);
  if (!known) {
    const { symbols } = lake;
    const cells = Array.from(lake.cells, (ground, cell) => {
      if (cell === lake.goal) return symbols.goal;
      return ground === HOLE ? symbols.hole : symbols.frozen;
    });
    known = backdrop(cells, lake.cols);
    backdropOf.set(lake, known);
  }
  return known;
}

function grid({ lake, position }: FrozenLakeState): string {
  const { text, starts, ends } = emptyLake(lake);
  return text.slice(0, starts[position]) + playerSymbol(lake, position) + text.slice(ends[position]);
}

function playerSymbol(lake: Lake, position: number): string {
  if (position === lake.goal) return lake.symbols.player_on_goal;
  return isHole(lake, position) ? lake.symbols.player_in_hole : lake.symbols.player;
}

function coord({ lake, position }: FrozenLakeState): string {
  const { rows, cols } = lake;
  const place = { playing: 'Player', in_hole: 'Player in hole', on_goal: 'Player on goal' }[
    status(lake, position)
  ];
  const lines = [
    `Board size: ${rows} rows x ${cols} cols (zero-indexed).`,
    `Start: ${coordinate(lake.start, cols)}`,
    `Goal: ${coordinate(lake.goal, cols)}`,
    `${place}: ${coordinate(position, cols)}`,
  ];
  const holes = holesOf(lake);
  if (holes.length > 0) lines.push(`Holes: ${coordinates(holes, cols)}`);
  return lines.join('\n');
}

function structured({ lake, position, steps }: FrozenLakeState): Json {
  const { rows, cols } = lake;
  return {
    rows,
    cols,
    grid: gridRows(codes(lake, position), cols),
    start: rowCol(lake.start, cols),
    goal: rowCol(lake.goal, cols),
    player: rowCol(position, cols),
    holes: holesOf(lake).map(cell => rowCol(cell, cols)),
    status: status(lake, position),
    steps,
  };
}

function codes(lake: Lake, position: number): number[] {
  const cells: number[] = Array.from(lake.cells, (ground, cell) => {
    if (cell === lake.goal) return GOAL;
    return ground === HOLE ? HOLE_CODE : FROZEN;
  });
  cells[position] = { playing: PLAYER, in_hole: PLAYER_IN_HOLE, on_goal: PLAYER_ON_GOAL }[
    status(lake, position)
  ];
  return cells;
}

function status(lake: Lake, position: number): (typeof STATUSES)[number] {
  if (position === lake.goal) return 'on_goal';
  return isHole(lake, position) ? 'in_hole' : 'playing';
}

export function holesOf(lake: Lake): number[] {
  const holes: number[] = [];
  for (let cell = 0; cell < lake.cells.length; cell++) if (isHole(lake, cell)) holes.push(cell);
  return holes;
}

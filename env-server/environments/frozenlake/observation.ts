import type { Json } from '../../../shared/json.ts';
import type { ObservationFormat } from '../environment.ts';
import { coordinate, coordinates, rowCol } from '../grid.ts';
import { type FrozenLakeState, HOLE, isHole, type Lake } from './rules.ts';

export function observe(state: FrozenLakeState, format: ObservationFormat): Json {
  switch (format === 'text' ? state.lake.form : format) {
    case 'grid':
      return grid(state);
    case 'coord':
      return coord(state);
    case 'grid_coord':
      return `Coordinates: \n${coord(state)}\nGrid Map: \n${grid(state)}`;
    default:
      return structured(state);
  }
}

function grid({ lake, position }: FrozenLakeState): string {
  const { cells, cols, goal, symbols } = lake;
  let text = '';
  for (let cell = 0, col = 0; cell < cells.length; cell++, col++) {
    if (col === cols) {
      text += '\n';
      col = 0;
    }
    if (cell === position) text += playerSymbol(lake, position);
    else if (cell === goal) text += symbols.goal;
    else text += cells[cell] === HOLE ? symbols.hole : symbols.frozen;
  }
  return text;
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
    start: rowCol(lake.start, cols),
    goal: rowCol(lake.goal, cols),
    player: rowCol(position, cols),
    holes: holesOf(lake).map(cell => rowCol(cell, cols)),
    status: status(lake, position),
    steps,
  };
}

function status(lake: Lake, position: number): 'playing' | 'in_hole' | 'on_goal' {
  if (position === lake.goal) return 'on_goal';
  return isHole(lake, position) ? 'in_hole' : 'playing';
}

export function holesOf(lake: Lake): number[] {
  const holes: number[] = [];
  for (let cell = 0; cell < lake.cells.length; cell++) if (isHole(lake, cell)) holes.push(cell);
  return holes;
}

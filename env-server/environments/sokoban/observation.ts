import type { Json } from '../../../shared/json.ts';
import type { ObservationFormat } from '../environment.ts';
import { coordinates, rowCol } from '../grid.ts';
import { countOnTarget, type Room, type SokobanState, TARGET, WALL } from './rules.ts';

export function observe(state: SokobanState, format: ObservationFormat): Json {
  switch (format === 'text' ? state.room.form : format) {
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

const backgroundOf = new WeakMap<Room, readonly string[]>();

/** Text of the empty room, a piece for each cell with the line break before it. */
function background(room: Room): readonly string[] {
  let pieces = backgroundOf.get(room);
  if (!pieces) {
    const { symbols, cols } = room;
    pieces = Array.from(room.cells, (ground, cell) => {
      const symbol = ground === WALL ? symbols.wall : ground === TARGET ? symbols.target : symbols.floor;
      return lineBreak(cell, cols) + symbol;
    });
    backgroundOf.set(room, pieces);
  }
  return pieces;
}

function lineBreak(cell: number, cols: number): string {
  return cell > 0 && cell % cols === 0 ? '\n' : '';
}

function grid({ room, player, boxes }: SokobanState): string {
  const { symbols, cols, cells } = room;
  const pieces = background(room);
  let text = '';
  let box = 0;
  for (let cell = 0; cell < pieces.length; cell++) {
    if (cell === boxes[box]) {
      box++;
      text += lineBreak(cell, cols) + (cells[cell] === TARGET ? symbols.box_on_target : symbols.box);
    } else if (cell === player) {
      text += lineBreak(cell, cols) + (cells[cell] === TARGET ? symbols.player_on_target : symbols.player);
    } else {
      text += pieces[cell];
    }
  }
  return text;
}

function coord({ room, player, boxes }: SokobanState): string {
  const { rows, cols, cells } = room;
  const lines = [`Board size: ${rows} rows x ${cols} cols (zero-indexed).`];
  const list = (label: string, places: readonly number[]): void => {
    if (places.length > 0) lines.push(`${label}: ${coordinates(places, cols)}`);
  };
  list('Targets', targetsOf(room));
  list(
    'Boxes',
    boxes.filter(cell => cells[cell] !== TARGET),
  );
  list(
    'Boxes on target',
    boxes.filter(cell => cells[cell] === TARGET),
  );
  list(cells[player] === TARGET ? 'Player on target' : 'Player', [player]);
  return lines.join('\n');
}

function structured({ room, player, boxes }: SokobanState): Json {
  const { rows, cols } = room;
  const walls: Json[] = [];
  for (let cell = 0; cell < room.cells.length; cell++) {
    if (room.cells[cell] === WALL) walls.push(rowCol(cell, cols));
  }
  return {
    rows,
    cols,
    walls,
    targets: targetsOf(room).map(cell => rowCol(cell, cols)),
    boxes: boxes.map(cell => rowCol(cell, cols)),
    player: rowCol(player, cols),
    boxes_on_target: countOnTarget(room, boxes),
  };
}

export function targetsOf(room: Room): number[] {
  const targets: number[] = [];
  for (let cell = 0; cell < room.cells.length; cell++) if (room.cells[cell] === TARGET) targets.push(cell);
  return targets;
}

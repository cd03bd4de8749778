import type { Json } from '../../../shared/json.ts';
import {
  type Backdrop,
  backdrop,
  boardText,
  coordinates,
  gridRows,
  inForm,
  rowCol,
} from '../core/drawing/grid.ts';
import type { ObservationFormat } from '../core/environment.ts';
import type { ObservationSpaces } from '../core/space.ts';
import { COUNT, cell as cellSpace, dict, integers, list } from '../core/spaces.ts';
import type { SokobanConfig, Symbols } from './config.ts';
import { render } from './render.ts';
import { countOnTarget, type Room, type SokobanState, TARGET, WALL } from './rules.ts';

export function observe(state: SokobanState, format: ObservationFormat): Json {
  return inForm(state, format === 'text' ? state.room.form : format, FORMS);
}

/** Codes of the cells of `grid`: gym-sokoban's, and RAGEN's for the player on a target. */
const CODES = { wall: 0, floor: 1, target: 2, boxOnTarget: 3, box: 4, player: 5, playerOnTarget: 6 } as const;

export function observationSpaces({ dim_room, symbols }: SokobanConfig): ObservationSpaces {
  const [rows, cols] = dim_room;
  const place = cellSpace(rows, cols);
  return {
    text: boardText(symbols),
    structured: dict({
      rows: COUNT,
      cols: COUNT,
      grid: integers(CODES.wall, CODES.playerOnTarget, rows, cols),
      walls: list(place),
      targets: list(place),
      boxes: list(place),
      player: place,
      boxes_on_target: COUNT,
    }),
  };
}

const FORMS = { grid, coord, structured, render };

const backdropOf = new WeakMap<Room, Backdrop>();

/** The room without boxes and player. */
function emptyRoom(room: Room): Backdrop {
  let known = backdropOf.get(room);
  if (!known) {
    const { symbols } = room;
    const cells = Array.from(room.cells, ground => {
      if (ground === WALL) return symbols.wall;
      return ground === TARGET ? symbols.target : symbols.floor;
    });
    known = backdrop(cells, room.cols);
    backdropOf.set(room, known);
  }
  return known;
}

function grid({ room, player, boxes }: SokobanState): string {
  const { symbols, cells } = room;
  const { text, starts, ends } = emptyRoom(room);
  let drawn = '';
  let from = 0;
  let box = 0;
  for (let i = 0; i <= boxes.length; i++) {
    const playerIsDue = box === i;
    const isPlayer = playerIsDue && (box === boxes.length || player < boxes[box]);
    const cell = isPlayer ? player : boxes[box++];
    drawn += text.slice(from, starts[cell]) + symbolOf(symbols, cells[cell] === TARGET, isPlayer);
    from = ends[cell];
  }
  return drawn + text.slice(from);
}

function symbolOf(symbols: Symbols, onTarget: boolean, isPlayer: boolean): string {
  if (isPlayer) return onTarget ? symbols.player_on_target : symbols.player;
  return onTarget ? symbols.box_on_target : symbols.box;
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
    grid: gridRows(codes(room, player, boxes), cols),
    walls,
    targets: targetsOf(room).map(cell => rowCol(cell, cols)),
    boxes: boxes.map(cell => rowCol(cell, cols)),
    player: rowCol(player, cols),
    boxes_on_target: countOnTarget(room, boxes),
  };
}

function codes({ cells }: Room, player: number, boxes: readonly number[]): number[] {
  const grid: number[] = Array.from(cells, ground => {
    if (ground === WALL) return CODES.wall;
    return ground === TARGET ? CODES.target : CODES.floor;
  });
  for (const box of boxes) grid[box] = cells[box] === TARGET ? CODES.boxOnTarget : CODES.box;
  grid[player] = cells[player] === TARGET ? CODES.playerOnTarget : CODES.player;
  return grid;
}

export function targetsOf(room: Room): number[] {
  const targets: number[] = [];
  for (let cell = 0; cell < room.cells.length; cell++) if (room.cells[cell] === TARGET) targets.push(cell);
  return targets;
}

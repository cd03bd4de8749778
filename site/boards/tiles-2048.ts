import { html } from '../components/html.ts';
import { at, type BoardKind, type Drawn, has, isSide } from './board-kind.ts';

interface TilesState {
  readonly grid: readonly (readonly number[])[];
  readonly score: number;
}

interface Tile {
  readonly id: number;
  readonly value: number;
  /** Index of its cell, row by row. */
  readonly cell: number;
  /** True if it came with this state, drawn or merged. */
  readonly born?: 'new' | 'merged';
}

interface Tiles {
  readonly tiles: readonly Tile[];
  /** Tiles that have just merged, at their common cell. */
  readonly merged: readonly Tile[];
  readonly nextId: number;
}

const SIDE = 72;
const GAP = 8;
/** Digits that fit at the largest size of the font. */
const MAX_DIGITS = 2;
const FONTS = [32, 32, 26, 21, 17, 14];
/** Colors of a tile and its number; greater tiles look like the last. */
const COLORS: { readonly [value: number]: readonly [tile: string, number: string] } = {
  2: ['#f3ede2', '#3b352b'],
  4: ['#ecdfc4', '#3b352b'],
  8: ['#f4bf86', '#3b352b'],
  16: ['#b85f1b', '#ffffff'],
  32: ['#b84a33', '#ffffff'],
  64: ['#a3301d', '#ffffff'],
  128: ['#2f7f74', '#ffffff'],
  256: ['#1f6d86', '#ffffff'],
  512: ['#2b5aa3', '#ffffff'],
  1024: ['#4c45a8', '#ffffff'],
  2048: ['#7d2fa0', '#ffffff'],
};
const MAX_NAMED = 2048;
const UNUSUAL = ['#7a1f3d', '#ffffff'] as const;

/** The tiles of 2048; they slide, merge and appear. */
export const tiles2048: BoardKind<TilesState, Tiles> = {
  name: 'tiles-2048',
  fits: ({ grid, ...state }) =>
    has(state, 'score', 'valid_moves') && Array.isArray(grid) && isSide(grid.length),
  track: (state, before) => (before && moved(state, before)) || fresh(state),

  draw({ grid }, { memory: { tiles, merged } }) {
    const size = grid.length;
    const side = size * (SIDE + GAP) + GAP;
    const place = (cell: number) =>
      at(GAP + (cell % size) * (SIDE + GAP), GAP + Math.floor(cell / size) * (SIDE + GAP));
    const draw = ({ id, value, cell, born }: Tile) => {
      const [fill, ink] = COLORS[Math.min(value, MAX_NAMED)] ?? UNUSUAL;
      return html`
      <g key=${`tile ${id}`} class="piece" style=${place(cell)}>
        <g class="tile ${born ?? ''}">
          <rect fill=${fill} width=${SIDE} height=${SIDE} rx="7" />
          <text style=${{ fill: ink, fontSize: `${fontSize(value)}px` }} x=${SIDE / 2} y=${SIDE / 2}>${value}</text>
        </g>
      </g>
    `;
    };
    return html`<svg class="board-svg tiles-2048" viewBox="0 0 ${side} ${side}" data-ratio="1" aria-hidden="true">
      <rect fill="var(--tray)" width=${side} height=${side} rx="10" />
      ${Array.from({ length: size * size }, (_, cell) => html`<rect fill="var(--slot)" key=${`slot ${cell}`} width=${SIDE} height=${SIDE} rx="7" style=${place(cell)} />`)}
      ${[...merged, ...tiles].map(draw)}
    </svg>`;
  },
};

function fontSize(value: number): number {
  const digits = String(value).length;
  return FONTS[digits - 1] ?? FONTS[FONTS.length - 1] * (FONTS.length / Math.max(digits, MAX_DIGITS));
}

function fresh({ grid }: TilesState): Tiles {
  const tiles = grid
    .flat()
    .map((value, cell) => ({ id: cell, value, cell }))
    .filter(({ value }) => value > 0);
  return { tiles, merged: [], nextId: grid.length ** 2 };
}

/** The tiles after a move, by name; undefined where no single move leads from one state to the other. */
function moved({ grid }: TilesState, before: Drawn<TilesState, Tiles>): Tiles | undefined {
  const size = grid.length;
  if (before.state.grid.length !== size) return undefined;
  const values = grid.flat();
  const known = before.memory;
  if (same(before.state.grid.flat(), values)) return { ...known, merged: [] };
  for (const lines of directions(size)) {
    const slid = slide(known, lines);
    const after = Array<number>(size * size).fill(0);
    for (const { cell, value } of slid.tiles) after[cell] = value;
    const drawn = values.flatMap((value, cell) => (value === after[cell] ? [] : [{ cell, value }]));
    if (drawn.length > 1 || drawn.some(({ cell }) => after[cell] !== 0)) continue;
    const tiles = [...slid.tiles, ...drawn.map(tile => ({ ...tile, id: slid.nextId, born: 'new' as const }))];
    return { tiles, merged: slid.merged, nextId: slid.nextId + drawn.length };
  }
  return undefined;
}

const same = (a: readonly number[], b: readonly number[]) => a.every((value, index) => value === b[index]);

/** For each direction the lines of cells, each from the edge that tiles slide to. */
function directions(size: number): number[][][] {
  const range = Array.from({ length: size }, (_, index) => index);
  const left = range.map(row => range.map(col => row * size + col));
  const up = range.map(col => range.map(row => row * size + col));
  return [left, left.map(line => line.toReversed()), up, up.map(line => line.toReversed())];
}

function slide({ tiles, nextId }: Tiles, lines: readonly (readonly number[])[]): Tiles {
  const byCell = new Map(tiles.map(tile => [tile.cell, tile]));
  const next: Tile[] = [];
  const merged: Tile[] = [];
  let id = nextId;
  for (const line of lines) {
    let end = 0;
    let last: Tile | undefined;
    for (const tile of line.flatMap(cell => byCell.get(cell) ?? [])) {
      if (last?.value === tile.value) {
        const cell = last.cell;
        next.splice(next.indexOf(last), 1, { id: id++, value: 2 * tile.value, cell, born: 'merged' });
        merged.push(last, { id: tile.id, value: tile.value, cell });
        last = undefined;
      } else {
        last = { id: tile.id, value: tile.value, cell: line[end++] };
        next.push(last);
      }
    }
  }
  return { tiles: next, merged, nextId: id };
}

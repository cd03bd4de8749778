import type { ComponentChildren, VNode } from 'preact';
import { html } from '../components/html.ts';
import { at } from './board-kind.ts';

/** Side of a cell in user units. */
export const CELL = 40;

/** [row, col], counted from 0. */
export type Cell = readonly [row: number, col: number];

export const sameCell = ([row, col]: Cell, other: Cell): boolean => row === other[0] && col === other[1];

interface GridProps {
  readonly rows: number;
  readonly cols: number;
  readonly name: string;
  /** Changes with the level; nothing slides from level to level. */
  readonly level: string;
  readonly children?: ComponentChildren;
}

/** A board of square cells. */
export function gridBoard({ rows, cols, name, level, children }: GridProps): VNode {
  return html`<svg
    key=${level} class="board-svg ${name}" viewBox="0 0 ${cols * CELL} ${rows * CELL}"
    data-ratio=${cols / rows} aria-hidden="true"
  >${children}</svg>`;
}

/** The squares of cells as one path, a little smaller than the cells. */
export function squares(cells: readonly Cell[], inset = 0): string {
  const side = CELL - 2 * inset;
  return cells
    .map(([row, col]) => `M${col * CELL + inset} ${row * CELL + inset}h${side}v${side}h${-side}z`)
    .join('');
}

/** A piece that slides when its cell changes. */
export function piece(key: string, [row, col]: Cell, name: string, body: ComponentChildren): VNode {
  return html`<g key=${key} class="piece ${name}" style=${at(col * CELL, row * CELL)}>${body}</g>`;
}

/** Cells of a board, row by row. */
export function cellsOf(rows: number, cols: number): Cell[] {
  return Array.from({ length: rows * cols }, (_, index) => [Math.floor(index / cols), index % cols] as const);
}

/** A person, seen from the front. */
export const person = (coat: string, hat: string): VNode => html`
  <ellipse fill="#0000002e" cx="20" cy="36" rx="10" ry="2.5" />
  <path fill=${coat} d="M9.5 35v-5.5a10.5 9.5 0 0 1 21 0V35z" />
  <circle fill="#e5ae80" cx="20" cy="13.5" r="7.5" />
  <path fill=${hat} d="M12.2 12.4a7.8 7.8 0 0 1 15.6 0z" />
  <circle fill="#33261c" cx="17.2" cy="15" r="1.1" />
  <circle fill="#33261c" cx="22.8" cy="15" r="1.1" />
`;

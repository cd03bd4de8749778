import { useState } from 'preact/hooks';
import type { Json } from '../../shared/json.ts';
import { html } from '../components/html.ts';
import { type BoardKind, has, isSide } from './board-kind.ts';

interface SudokuState {
  readonly size: number;
  /** The givens; 0 is empty. */
  readonly puzzle: readonly (readonly number[])[];
  readonly grid: readonly (readonly number[])[];
}

interface SudokuProps {
  readonly state: SudokuState;
  readonly act?: (action: Json) => void;
}

const CELL = 40;
const MARGIN = 2;
const STEPS: { readonly [key: string]: readonly [number, number] } = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

/** A Sudoku; cells are chosen by click or arrow keys and filled by digits or the number pad. */
export const sudoku: BoardKind<SudokuState> = {
  name: 'sudoku',
  fits: state => has(state, 'puzzle', 'grid') && isSide(state.size),
  draw: (state, { act }) => html`<${Sudoku} key="sudoku ${state.size}" state=${state} act=${act} />`,
};

function Sudoku({ state, act }: SudokuProps) {
  const { size, puzzle, grid } = state;
  const [chosen, choose] = useState<readonly [number, number]>(() => firstEmpty(state));
  const [typed, type] = useState('');
  if (!act) return drawSudoku(state);
  const [row, col] = chosen;
  const isGiven = puzzle[row][col] !== 0;
  const place = (number: number) => {
    type('');
    if (!isGiven && number >= 1 && number <= size) act(`place ${number} at row ${row + 1} col ${col + 1}`);
  };
  const press = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const step = STEPS[event.key];
    if (step) {
      const wrap = (value: number) => (value + size) % size;
      choose([wrap(row + step[0]), wrap(col + step[1])]);
      type('');
    } else if (/^\d$/.test(event.key)) {
      // A second digit makes 10 to 16 where the board has them.
      const number = Number(typed + event.key);
      if (size > 9 && number * 10 <= size) type(String(number));
      else place(number <= size ? number : Number(event.key));
    } else if (event.key === 'Enter' && typed !== '') place(Number(typed));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class="row">
    <div
      class="sudoku-keys scroll-x" tabindex="0" role="grid" aria-label="Sudoku board: arrow keys choose a cell, digits fill it"
      data-board-focus aria-activedescendant=${`cell-${row}-${col}`} onKeyDown=${press}
    >${drawSudoku(state, { chosen, typed, choose: (r, c) => choose([r, c]) })}</div>
    <div class="number-pad" role="group" aria-label=${`Numbers for row ${row + 1}, column ${col + 1}`} style=${{ '--columns': Math.max(2, Math.sqrt(size)) }}>
      ${Array.from(
        { length: size },
        (_, index) => html`<button
          key=${index} type="button" disabled=${isGiven} aria-pressed=${grid[row][col] === index + 1}
          tabindex=${index === 0 ? 0 : -1} onClick=${() => place(index + 1)} onKeyDown=${rove}
        >${index + 1}</button>`,
      )}
    </div>
  </div>`;
}

/** Arrow keys move between the numbers of the pad, so that it is one tab stop. */
function rove(event: KeyboardEvent): void {
  const step = STEPS[event.key];
  if (!step) return;
  const button = event.currentTarget as HTMLElement;
  const next = step[0] + step[1] > 0 ? button.nextElementSibling : button.previousElementSibling;
  (next as HTMLElement | null)?.focus();
  event.preventDefault();
  event.stopPropagation();
}

interface Selection {
  readonly chosen: readonly [number, number];
  /** First digit of a two-digit number. */
  readonly typed: string;
  choose(row: number, col: number): void;
}

/** The grid itself. */
function drawSudoku({ size, puzzle, grid }: SudokuState, selection?: Selection) {
  const side = size * CELL + 2 * MARGIN;
  const box = Math.sqrt(size);
  const clashing = clashes(grid);
  const cell = (row: number, col: number) => {
    const value = grid[row][col];
    const isChosen = selection?.chosen[0] === row && selection.chosen[1] === col;
    const isGiven = puzzle[row][col] !== 0;
    const clashes = clashing.has(row * size + col);
    const back = isChosen ? 'sudoku-chosen' : clashes ? 'sudoku-clash' : isGiven ? 'sudoku-given' : 'surface';
    const ink = clashes ? 'curve-4' : isGiven ? 'ink' : 'curve-1';
    const [x, y] = [MARGIN + col * CELL, MARGIN + row * CELL];
    return html`<g
      key=${col} id=${selection && `cell-${row}-${col}`} class=${isGiven ? 'given' : 'free'} role=${selection && 'gridcell'}
      aria-selected=${selection && String(isChosen)} aria-label=${selection && nameOf(row, col, value, isGiven)}
      onClick=${selection && (() => selection.choose(row, col))}
    >
      <rect fill=${`var(--${back})`} x=${x} y=${y} width=${CELL} height=${CELL} />
      <text style=${{ fill: `var(--${ink})`, fontSize: '20px' }} x=${x + CELL / 2} y=${y + CELL / 2}>${(isChosen && selection.typed) || value || ''}</text>
    </g>`;
  };
  const lines = Array.from({ length: size + 1 }, (_, index) => index);
  const line = (index: number) =>
    `M${MARGIN} ${MARGIN + index * CELL}h${size * CELL}M${MARGIN + index * CELL} ${MARGIN}v${size * CELL}`;
  // Cells for a finger: a large board scrolls in a narrow place.
  const least = selection && { minWidth: `${1.5 * size + 0.25}rem`, maxHeight: 'none' };
  return html`<svg class="board-svg sudoku" style=${least} viewBox="0 0 ${side} ${side}" data-ratio="1" aria-hidden=${selection ? undefined : 'true'} role=${selection && 'presentation'}>
    ${grid.map((_, row) => html`<g key=${row} role=${selection && 'row'}>${lines.slice(0, size).map(col => cell(row, col))}</g>`)}
    <path fill="none" stroke="var(--sudoku-thin)" d=${lines.map(line).join('')} />
    <path fill="none" stroke="var(--sudoku-thick)" stroke-width="2.4" d=${lines
      .filter(index => index % box === 0)
      .map(line)
      .join('')} />
  </svg>`;
}

const nameOf = (row: number, col: number, value: number, isGiven: boolean): string =>
  `Row ${row + 1}, column ${col + 1}: ${value === 0 ? 'empty' : value}${isGiven ? ', given' : ''}`;

function firstEmpty({ size, grid }: SudokuState): readonly [number, number] {
  const index = grid.flat().indexOf(0);
  return index < 0 ? [0, 0] : [Math.floor(index / size), index % size];
}

/** Cells with a number that occurs twice in a row, column or box. */
function clashes(grid: SudokuState['grid']): ReadonlySet<number> {
  const size = grid.length;
  const box = Math.sqrt(size);
  const seen = new Map<string, number[]>();
  for (const [index, value] of grid.flat().entries()) {
    if (value === 0) continue;
    const [row, col] = [Math.floor(index / size), index % size];
    const boxIndex = Math.floor(row / box) * box + Math.floor(col / box);
    for (const unit of [`r${row}`, `c${col}`, `b${boxIndex}`]) {
      const key = `${unit} ${value}`;
      seen.set(key, [...(seen.get(key) ?? []), index]);
    }
  }
  return new Set([...seen.values()].filter(cells => cells.length > 1).flat());
}

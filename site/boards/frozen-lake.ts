import { html } from '../components/html.ts';
import { type BoardKind, has, isSide } from './board-kind.ts';
import { CELL, type Cell, cellsOf, gridBoard, person, piece, squares } from './grid.ts';

interface FrozenLakeState {
  readonly rows: number;
  readonly cols: number;
  readonly start: Cell;
  readonly goal: Cell;
  readonly player: Cell;
  readonly holes: readonly Cell[];
  readonly status: 'playing' | 'in_hole' | 'on_goal';
}

/** A lake from above: ice, dark holes, a flag on the goal. */
export const frozenLake: BoardKind<FrozenLakeState> = {
  name: 'frozen-lake',
  fits: state =>
    has(state, 'start', 'goal', 'player', 'holes', 'status') && isSide(state.rows) && isSide(state.cols),

  draw({ rows, cols, start, goal, player, holes, status }) {
    const children = html`
      <rect fill="var(--crack)" width=${cols * CELL} height=${rows * CELL} />
      <path fill="var(--ice)" d=${squares(cellsOf(rows, cols), 0.6)} />
      <path fill="none" stroke="var(--shine)" stroke-width="1.6" stroke-linecap="round" d=${cellsOf(rows, cols).map(shine).join('')} />
      <path fill="none" stroke="var(--start)" stroke-width="1.5" stroke-dasharray="4 4" d=${squares([start], 3)} />
      ${holes.map(
        ([row, col]) => html`
          <circle fill="var(--shore)" cx=${(col + 0.5) * CELL} cy=${(row + 0.5) * CELL} r="16.5" />
          <circle fill="var(--water)" cx=${(col + 0.5) * CELL} cy=${(row + 0.5) * CELL} r="14" />
        `,
      )}
      ${piece('goal', goal, 'flag', FLAG)}
      ${piece('player', player, status, html`<g class="body">${SKATER}</g>`)}
    `;
    const level = `${rows} ${cols}|${start}|${goal}|${holes.join(' ')}`;
    return gridBoard({ rows, cols, name: 'frozen-lake', level, children });
  },
};

const shine = ([row, col]: Cell): string =>
  `M${col * CELL + 7} ${row * CELL + 14}l7-7M${col * CELL + 26} ${row * CELL + 34}l8-8`;

const SKATER = person('#e08a1e', '#a8530d');
const FLAG = html`
  <path fill="none" stroke="var(--pole)" stroke-width="2.6" stroke-linecap="round" d="M12 5v31" />
  <path fill="#d8412f" d="M12.5 5.5h18l-4.5 6 4.5 6h-18z" />
`;

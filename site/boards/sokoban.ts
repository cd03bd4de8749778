import { html } from '../components/html.ts';
import { type BoardKind, type Drawn, has, isSide } from './board-kind.ts';
import { CELL, type Cell, cellsOf, gridBoard, person, piece, sameCell, squares } from './grid.ts';

interface SokobanState {
  readonly rows: number;
  readonly cols: number;
  readonly walls: readonly Cell[];
  readonly targets: readonly Cell[];
  readonly boxes: readonly Cell[];
  readonly player: Cell;
}

/** A name for each box, in the order of the state's boxes. */
type Boxes = readonly string[];

/** A room from above: brick walls, rings for targets, crates that turn green on a target. */
export const sokoban: BoardKind<SokobanState, Boxes> = {
  name: 'sokoban',
  fits: state =>
    has(state, 'walls', 'targets', 'boxes', 'player') && isSide(state.rows) && isSide(state.cols),
  track: nameBoxes,

  draw({ rows, cols, walls, targets, boxes, player }, { memory }) {
    const onTarget = (cell: Cell) => targets.some(target => sameCell(target, cell));
    const children = html`
      <rect fill="var(--joint)" width=${cols * CELL} height=${rows * CELL} />
      <path fill="var(--floor)" d=${squares(cellsOf(rows, cols), 0.6)} />
      <path fill="var(--brick)" d=${squares(walls)} />
      <path fill="none" stroke="var(--mortar)" stroke-width="1.4" d=${walls.map(mortar).join('')} />
      ${targets.map(
        ([row, col]) =>
          html`<circle fill="var(--target-hole)" stroke="var(--target)" stroke-width="3" cx=${(col + 0.5) * CELL} cy=${(row + 0.5) * CELL} r="8" />
            <circle fill="var(--target)" cx=${(col + 0.5) * CELL} cy=${(row + 0.5) * CELL} r="2.5" />`,
      )}
      ${boxes.map((cell, index) =>
        piece(
          memory[index],
          cell,
          'crate',
          onTarget(cell) ? crate('#63ab50', '#2f6326') : crate('#cb9344', '#7d5320'),
        ),
      )}
      ${piece('player', player, 'person', KEEPER)}
    `;
    return gridBoard({ rows, cols, name: 'sokoban', level: levelOf({ walls, targets }), children });
  },
};

const KEEPER = person('#2f6fb0', '#1f4f83');
const crate = (face: string, edge: string) => html`
  <rect fill=${edge} x="4" y="4" width="32" height="32" rx="3" />
  <rect fill=${face} x="7.5" y="7.5" width="25" height="25" rx="1" />
  <path fill="none" stroke=${edge} stroke-width="3" d="M8 8 32 32M32 8 8 32" />
`;

const levelOf = ({ walls, targets }: Pick<SokobanState, 'walls' | 'targets'>): string =>
  `${walls.join(' ')}|${targets.join(' ')}`;

function mortar([row, col]: Cell): string {
  const x = col * CELL;
  const y = row * CELL;
  const course = CELL / 4;
  return Array.from({ length: 4 }, (_, i) => {
    const joints = i % 2 === 0 ? [CELL / 2, CELL] : [CELL / 4, (3 * CELL) / 4];
    return `M${x} ${y + i * course}h${CELL}${joints.map(joint => `M${x + joint} ${y + i * course}v${course}`).join('')}`;
  }).join('');
}

/** A box that has not moved keeps its name; the moved one gets the remaining name. */
function nameBoxes(state: SokobanState, before: Drawn<SokobanState, Boxes> | undefined): Boxes {
  const fresh = state.boxes.map((_, index) => `box ${index}`);
  if (!before || before.state.boxes.length !== fresh.length || levelOf(before.state) !== levelOf(state))
    return fresh;
  const left = new Map(before.memory.map((name, index) => [name, before.state.boxes[index]]));
  const names = state.boxes.map(cell => {
    const found = [...left].find(([, old]) => sameCell(old, cell));
    if (found) left.delete(found[0]);
    return found?.[0];
  });
  const rest = [...left.keys()];
  return names.map(name => name ?? rest.shift()!);
}

import type { VNode } from 'preact';
import { isObject } from '../../shared/json.ts';
import { html } from '../components/html.ts';
import { actionButtons, type BoardContext, type BoardKind, has, isSide } from './board-kind.ts';
import { CELL, cellsOf, gridBoard, squares } from './grid.ts';

interface Thing {
  readonly name: string;
  readonly row: number;
  readonly col: number;
}

interface RoomState {
  /** The things that the player has seen. */
  readonly room: { readonly size: number; readonly things: readonly Thing[] };
  readonly position: { readonly row: number; readonly col: number };
  readonly facing: keyof typeof ANGLES;
  readonly question: string;
  readonly choices: readonly string[];
  readonly report: string;
  readonly answer: string | null;
}

/** Degrees, clockwise from north. */
const ANGLES = { north: 0, east: 90, south: 180, west: 270 } as const;
const FONT = 9.5;
/** Width of a letter as a share of its font size. */
const LETTER = 0.58;
const LABEL_WIDTH = 36;
const TURNS = ['look', 'turn left', 'turn right', 'turn around'];

/** A room from above, north up, as far as the player has seen it; the arrow points ahead. */
export const spatialRoom: BoardKind<RoomState> = {
  name: 'spatial-room',
  fits: ({ room, ...state }) =>
    has(state, 'position', 'facing', 'choices') && isObject(room) && isSide(room.size),

  draw(state, context) {
    return html`<div class="board-panel room-panel">
      ${map(state)}
      ${context.act && actions(state, context)}
    </div>`;
  },
};

function map({ room: { size, things }, position: { row, col }, facing, question }: RoomState): VNode {
  const x = (col + 0.5) * CELL;
  const y = (row + 0.5) * CELL;
  const children = html`
    <rect fill="var(--joint)" width=${size * CELL} height=${size * CELL} />
    <path fill="var(--floor)" d=${squares(cellsOf(size, size), 0.5)} />
    <svg width=${size * CELL} height=${size * CELL} overflow="hidden">
      <path fill="var(--sight)" opacity="0.13" d=${sight(size, x, y, facing)} />
    </svg>
    ${things.map(thing => html`<g key=${thing.name}>${label(thing)}</g>`)}
    <g class="piece" style=${{ transform: `translate(${x}px, ${y}px) rotate(${ANGLES[facing]}deg)` }}>
      <path fill="var(--ahead)" d="M0-14 11 11 0 6.5-11 11z" />
    </g>
  `;
  return gridBoard({ rows: size, cols: size, name: 'spatial-room', level: `${size} ${question}`, children });
}

function label({ name, row, col }: Thing): VNode {
  const size = Math.min(FONT, LABEL_WIDTH / (LETTER * name.length));
  return html`
    <rect fill="var(--thing)" x=${col * CELL + 1.5} y=${row * CELL + 1.5} width=${CELL - 3} height=${CELL - 3} rx="5" />
    <text style=${{ fill: 'var(--thing-name)', fontSize: `${size}px` }} x=${(col + 0.5) * CELL} y=${(row + 0.5) * CELL}>${name}</text>
  `;
}

/** The quarter of the room ahead. */
function sight(size: number, x: number, y: number, facing: RoomState['facing']): string {
  const far = 2 * size * CELL;
  const corners = {
    north: [-1, -1, 1, -1],
    east: [1, -1, 1, 1],
    south: [1, 1, -1, 1],
    west: [-1, 1, -1, -1],
  };
  const [ax, ay, bx, by] = corners[facing];
  return `M${x} ${y}l${ax * far} ${ay * far}L${x + bx * far} ${y + by * far}z`;
}

function actions({ room, question, choices, report }: RoomState, context: BoardContext<undefined>): VNode {
  return html`<div class="stack">
    <p>${report}</p>
    ${actionButtons(TURNS, context)}
    ${
      room.things.length > 0 &&
      actionButtons(
        room.things.map(({ name }) => `go to ${name}`),
        context,
      )
    }
    <p class="question">${question}</p>
    ${actionButtons(
      choices.map(choice => `answer ${choice}`),
      context,
      'answer ',
    )}
  </div>`;
}

import type { Static } from 'typebox';
import type { JsonObject } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { namedActions } from '../core/actions.ts';
import { type CellKinds, layoutSchema, symbolsSchema, textFormSchema } from '../core/drawing/grid.ts';
import { type Ends, type StepInfo, stepInfo } from '../core/environment.ts';
import { integerSetting } from '../core/settings.ts';
import { splitSchema } from '../core/splits.ts';

/** In the order of gym-sokoban, with RAGEN's player on a target. */
export const KINDS = {
  wall: ['#', 'wall', 'red bricks'],
  floor: ['_', 'floor', 'bare ground'],
  target: ['O', 'target', 'red ring'],
  box_on_target: ['√', 'box on target', 'green crate'],
  box: ['X', 'box', 'brown crate'],
  player: ['P', 'you', 'figure in blue'],
  player_on_target: ['S', 'you on a target', 'figure in blue on a red ring'],
} as const satisfies CellKinds;

const MIN_SIDE = 4;
const MAX_SIDE = 20;

export const configSchema = closed({
  dim_room: Type.Array(Type.Integer({ minimum: MIN_SIDE, maximum: MAX_SIDE }), {
    default: [6, 6],
    minItems: 2,
    maxItems: 2,
    description: 'Rows and columns, the walls around the room included.',
  }),
  num_boxes: integerSetting(3, [1, 8], 'Boxes, and targets.'),
  max_steps: integerSetting(100, [1, 10_000], 'Steps before truncation.'),
  search_depth: integerSetting(
    300,
    [2, 1000],
    'Depth limit of the search that pulls the boxes away from their targets.',
  ),
  min_solution: integerSetting(0, [0, 200], 'Rooms with a shorter shortest solution are drawn again.'),
  max_solution: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: 1000,
      description: 'Rooms with a longer shortest solution are drawn again.',
    }),
  ),
  split: splitSchema,
  observation_format: textFormSchema,
  symbols: symbolsSchema(KINDS),
});

export const optionsSchema = closed({
  layout: layoutSchema(
    'The room as rows of cells: the symbols of the observation, or the usual # - . * $ @ + of level files.',
  ),
});

export type SokobanConfig = Static<typeof configSchema>;
export type Symbols = SokobanConfig['symbols'];
export type SokobanOptions = Static<typeof optionsSchema>;

export const PRESETS: { readonly [name: string]: JsonObject } = {
  simple: { num_boxes: 1 },
  larger: { dim_room: [8, 8], num_boxes: 2, search_depth: 10 },
  coord: { num_boxes: 1, observation_format: 'coord' },
  grid_coord: { num_boxes: 1, observation_format: 'grid_coord' },
  visual: { num_boxes: 1, observation_format: 'image' },
  letters: {
    num_boxes: 1,
    symbols: {
      wall: 'W',
      floor: '.',
      target: 'G',
      box_on_target: 'C',
      box: 'B',
      player: 'A',
      player_on_target: '@',
    },
  },
};

export const WALL = '#';
export const FLOOR = '_';
export const TARGET = 'O';

/** Fixed for an episode and shared by all its states. */
export type Room = {
  readonly rows: number;
  readonly cols: number;
  /** Row-major, `#` wall, `_` floor, `O` target. */
  readonly cells: string;
  readonly targets: number;
  readonly form: SokobanConfig['observation_format'];
  readonly symbols: Symbols;
};

export type SokobanState = {
  readonly room: Room;
  readonly player: number;
  /** Cells of the boxes, ascending. */
  readonly boxes: readonly number[];
  /** Boxes on targets as of the last action; 0 after reset, regardless of the room. */
  readonly boxes_on_target: number;
};

export const ACTIONS = namedActions(['Up', 'Down', 'Left', 'Right'], 1);
export const DIRECTIONS = 4;

export const STEP_REWARD = -0.1;
export const BOX_REWARD = 1;
export const SOLVED_REWARD = 10;

/** The cell in a direction (0 Up, 1 Down, 2 Left, 3 Right), or −1 at the board's edge. */
export function neighbor(room: Pick<Room, 'rows' | 'cols'>, cell: number, direction: number): number {
  const { cols } = room;
  switch (direction) {
    case 0:
      return cell - cols;
    case 1:
      return cell + cols < room.rows * cols ? cell + cols : -1;
    case 2:
      return cell % cols > 0 ? cell - 1 : -1;
    default:
      return cell % cols < cols - 1 ? cell + 1 : -1;
  }
}

export function isWall(room: Pick<Room, 'cells'>, cell: number): boolean {
  return cell < 0 || room.cells[cell] === WALL;
}

export function countOnTarget(room: Pick<Room, 'cells'>, boxes: readonly number[]): number {
  let count = 0;
  for (let i = 0; i < boxes.length; i++) if (room.cells[boxes[i]] === TARGET) count++;
  return count;
}

export function isSolved(state: SokobanState): boolean {
  return countOnTarget(state.room, state.boxes) === state.room.targets;
}

/** The boxes after one of them moved, still ascending. */
function withBoxMoved(boxes: readonly number[], from: number, to: number): number[] {
  const moved = boxes.slice();
  let at = moved.indexOf(from);
  for (; at > 0 && moved[at - 1] > to; at--) moved[at] = moved[at - 1];
  for (; at < moved.length - 1 && moved[at + 1] < to; at++) moved[at] = moved[at + 1];
  moved[at] = to;
  return moved;
}

/** State after a move: the same state when the way is blocked. */
export function move(state: SokobanState, direction: number): SokobanState {
  const { room, player, boxes } = state;
  const next = neighbor(room, player, direction);
  if (isWall(room, next)) return state;
  if (!boxes.includes(next)) return { room, player: next, boxes, boxes_on_target: state.boxes_on_target };
  const beyond = neighbor(room, next, direction);
  if (isWall(room, beyond) || boxes.includes(beyond)) return state;
  return {
    room,
    player: next,
    boxes: withBoxMoved(boxes, next, beyond),
    boxes_on_target: state.boxes_on_target,
  };
}

/** Ends of an episode. */
export const ENDS = { solved: 'Brought every box onto a target' } as const satisfies Ends;

const NO_REWARDS = { moves: 0, boxes: 0, solved: 0 };

const info = (
  success: boolean,
  valid: boolean,
  effective: boolean,
  rewards: typeof NO_REWARDS,
  end?: keyof typeof ENDS,
): StepInfo => Object.freeze(stepInfo(success, valid, effective, end, { rewards: Object.freeze(rewards) }));

export const UNKNOWN_ACTION = info(false, false, false, NO_REWARDS);
export const AFTER_END = info(true, true, false, NO_REWARDS, 'solved');
export const UNKNOWN_AFTER_END = info(false, false, false, NO_REWARDS, 'solved');

const INFOS = [false, true].map(effective => ({
  solved: info(
    true,
    true,
    effective,
    { moves: STEP_REWARD, boxes: BOX_REWARD, solved: SOLVED_REWARD },
    'solved',
  ),
  unsolved: [-1, 0, 1].map(change =>
    info(false, true, effective, { moves: STEP_REWARD, boxes: change * BOX_REWARD, solved: 0 }),
  ),
}));

/**
 * `info` of one of the four actions, made once for all episodes.
 * @param change 1 where more boxes are on targets than before, −1 where fewer are, else 0; 1 where it solves the room
 */
export function infoOf(effective: boolean, change: number, solved: boolean): StepInfo {
  const infos = INFOS[Number(effective)];
  return solved ? infos.solved : infos.unsolved[change + 1];
}

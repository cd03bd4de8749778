import type { Static } from 'typebox';
import { closed, Type } from '../../../shared/schema/type.ts';
import { integerSetting } from '../core/setting-fields.ts';
import { splitSchema } from '../core/splits.ts';
import {
  type Cell,
  FACINGS,
  QUESTION_KINDS,
  type Question,
  type Room,
  type RoomDirection,
  type RoomThing,
} from './questions.ts';

export type SpatialState = {
  readonly room: Room;
  /**
   * Names of the things that the player has seen, in the room's order. Absent in sessions stored by an earlier version,
   * which begin with nothing seen.
   */
  readonly seen?: readonly string[];
  readonly position: Cell;
  readonly facing: RoomDirection;
  readonly question: Question;
  /** Text that the last action showed. */
  readonly report: string;
  readonly answer: string | null;
};

/** The things that the player has seen. */
export function seenThings({ room, seen = [] }: Pick<SpatialState, 'room' | 'seen'>): RoomThing[] {
  return room.things.filter(({ name }) => seen.includes(name));
}

export const NAMES = [
  'lamp', 'chair', 'vase', 'clock', 'piano', 'plant', 'desk', 'mirror', 'globe', 'drum', 'kettle', 'basket',
]; // biome-ignore format: a list reads better in rows

const MAX_ROOM = 20;

const questionKind = Type.Union(QUESTION_KINDS.map(kind => Type.Literal(kind)));
const cell = Type.Integer({ minimum: 0, maximum: MAX_ROOM - 1 });

export const configSchema = closed({
  size: integerSetting(8, [4, MAX_ROOM], 'Rows and columns of the room.'),
  things: integerSetting(5, [3, NAMES.length], 'Things in the room.'),
  questions: Type.Array(questionKind, {
    default: [...QUESTION_KINDS],
    minItems: 1,
    uniqueItems: true,
    description: 'Kinds of question that are asked.',
  }),
  split: splitSchema,
  max_steps: integerSetting(20, [1], 'Actions before truncation.'),
});

export const optionsSchema = closed({
  things: Type.Optional(
    Type.Array(
      closed({
        name: Type.String({ pattern: '^[A-Za-z][A-Za-z -]*$', maxLength: 40 }),
        row: cell,
        col: cell,
      }),
      {
        minItems: 3,
        maxItems: 40,
        description: 'What stands where, rows from north and columns from west, from 0.',
      },
    ),
  ),
  position: Type.Optional(
    Type.Array(cell, { minItems: 2, maxItems: 2, description: 'Row and column where the player starts.' }),
  ),
  facing: Type.Optional(Type.Union(FACINGS.map(facing => Type.Literal(facing)))),
  question: Type.Optional(
    Type.String({ maxLength: 500, description: 'The question, word for word one that the room allows.' }),
  ),
});

export type SpatialConfig = Static<typeof configSchema>;
export type SpatialOptions = Static<typeof optionsSchema>;

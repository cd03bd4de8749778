import type { Static } from 'typebox';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { integerSetting } from '../core/settings.ts';
import { splitSchema } from '../core/splits.ts';

/** A small room seen from above: rows run south, columns run east, both from 0. */
export type Room = {
  readonly size: number;
  readonly things: readonly RoomThing[];
};

export type RoomThing = { readonly name: string; readonly row: number; readonly col: number };

export const FACINGS = ['north', 'east', 'south', 'west'] as const;
export type RoomDirection = (typeof FACINGS)[number];

export const COMPASS = [
  'north',
  'north-east',
  'east',
  'south-east',
  'south',
  'south-west',
  'west',
  'north-west',
] as const;

export type Cell = { readonly row: number; readonly col: number };

/** Steps east and south from one place to another. */
function offset(from: Cell, to: Cell): { east: number; south: number } {
  return { east: to.col - from.col, south: to.row - from.row };
}

function walkingDistance(from: Cell, to: Cell): number {
  const { east, south } = offset(from, to);
  return Math.abs(east) + Math.abs(south);
}

/** Direction of `to` as seen from `from`: exactly along an axis, else between two. The cells must differ. */
export function compassDirection(from: Cell, to: Cell): (typeof COMPASS)[number] {
  const { east, south } = offset(from, to);
  const northSouth = south < 0 ? 'north' : south > 0 ? 'south' : '';
  const eastWest = east > 0 ? 'east' : east < 0 ? 'west' : '';
  return [northSouth, eastWest].filter(Boolean).join('-') as (typeof COMPASS)[number];
}

/** Steps ahead and to the right of a player who faces a direction. */
export function relative(
  from: Cell,
  facing: RoomDirection,
  to: Cell,
): { readonly ahead: number; readonly right: number } {
  const { east, south } = offset(from, to);
  switch (facing) {
    case 'north':
      return { ahead: -south, right: east };
    case 'east':
      return { ahead: east, right: south };
    case 'south':
      return { ahead: south, right: -east };
    case 'west':
      return { ahead: -east, right: -south };
  }
}

/** Things in the quarter of the room that lies ahead, nearest first. */
export function visible(room: Room, from: Cell, facing: RoomDirection): RoomThing[] {
  return room.things
    .filter(thing => {
      const { ahead, right } = relative(from, facing, thing);
      return ahead > 0 && Math.abs(right) <= ahead;
    })
    .toSorted(
      (a, b) => walkingDistance(from, a) - walkingDistance(from, b) || a.name.localeCompare(b.name, 'en'),
    );
}

export function thingAt(room: Room, { row, col }: Cell): RoomThing | undefined {
  return room.things.find(thing => thing.row === row && thing.col === col);
}

export function turned(facing: RoomDirection, quarters: number): RoomDirection {
  return FACINGS[(FACINGS.indexOf(facing) + quarters) % FACINGS.length];
}

export const QUESTION_KINDS = ['direction', 'side', 'nearest', 'count'] as const;
export type QuestionKind = (typeof QUESTION_KINDS)[number];

export type Question = {
  readonly kind: QuestionKind;
  readonly text: string;
  readonly choices: readonly string[];
  /** One of the choices. */
  readonly answer: string;
};

const SIDES = ['ahead', 'right', 'behind', 'left'] as const;

/** All questions of a kind that have a definite answer in the room. */
export function questionsOf(kind: QuestionKind, room: Room): Question[] {
  const { things } = room;
  switch (kind) {
    case 'direction':
      return pairs(things).map(([a, b]) => ({
        kind,
        text: `In which direction does the ${b.name} lie from the ${a.name}?`,
        choices: COMPASS,
        answer: compassDirection(a, b),
      }));
    case 'side':
      return pairs(things).flatMap(([a, b]) =>
        things.flatMap(c => {
          const side = c === a || c === b ? undefined : sideOf(a, b, c);
          if (!side) return [];
          const text = `You stand at the ${a.name} and face the ${b.name}. Where is the ${c.name}?`;
          return [{ kind, text, choices: SIDES, answer: side }];
        }),
      );
    case 'nearest':
      return things.flatMap(from => {
        const others = things
          .filter(thing => thing !== from)
          .toSorted((a, b) => walkingDistance(from, a) - walkingDistance(from, b));
        if (others.length < 2 || walkingDistance(from, others[0]) === walkingDistance(from, others[1]))
          return [];
        const text = `Which thing is the fewest steps away from the ${from.name}, walking along rows and columns?`;
        const choices = things.filter(thing => thing !== from).map(thing => thing.name);
        return [{ kind, text, choices, answer: others[0].name }];
      });
    case 'count':
      return things.flatMap(from =>
        (['north', 'east', 'south', 'west'] as const).map(way => {
          const count = things.filter(thing => {
            const { east, south } = offset(from, thing);
            return { north: -south, south, east, west: -east }[way] > 0;
          }).length;
          return {
            kind,
            text: `How many things lie further ${way} than the ${from.name}?`,
            choices: things.map((_, index) => String(index)),
            answer: String(count),
          };
        }),
      );
  }
}

/** A random question, with each kind equally likely; null when the room allows none. */
export function drawQuestion(kinds: readonly QuestionKind[], room: Room, rng: Random): Question | null {
  for (const kind of rng.shuffle(kinds)) {
    const questions = questionsOf(kind, room);
    if (questions.length > 0) return rng.choice(questions);
  }
  return null;
}

function pairs(things: readonly RoomThing[]): [RoomThing, RoomThing][] {
  return things.flatMap(a => things.flatMap(b => (a === b ? [] : [[a, b] as [RoomThing, RoomThing]])));
}

/** Quarter in which c is for a player at a who faces b; none on the border between two. */
function sideOf(a: RoomThing, b: RoomThing, c: RoomThing): (typeof SIDES)[number] | undefined {
  const face = offset(a, b);
  const look = offset(a, c);
  const ahead = face.east * look.east + face.south * look.south;
  const right = face.east * look.south - face.south * look.east;
  if (Math.abs(ahead) === Math.abs(right)) return undefined;
  if (Math.abs(ahead) > Math.abs(right)) return ahead > 0 ? 'ahead' : 'behind';
  return right > 0 ? 'right' : 'left';
}

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

import type { Random } from '../../../shared/random.ts';
import { InvalidOptions } from '../core/environment.ts';
import { isInSplit } from '../core/splits.ts';
import { NAMES, type SpatialConfig, type SpatialOptions } from './config.ts';
import { drawQuestion, QUESTION_KINDS, type Question, questionsOf } from './questions.ts';
import { type Cell, FACINGS, type Room, type RoomDirection, thingAt } from './room.ts';

export interface Level {
  readonly room: Room;
  readonly position: Cell;
  readonly facing: RoomDirection;
  readonly question: Question;
}

/**
 * The room, the player's place and the question of an episode.
 * @throws InvalidOptions when the options make no such room
 */
export function createLevel(config: SpatialConfig, rng: Random, options: SpatialOptions): Level {
  for (;;) {
    const room = options.things ? pinnedRoom(config.size, options.things) : randomRoom(config, rng);
    const position = options.position
      ? pinnedPlace(config.size, options.position)
      : randomPlace(config.size, rng);
    const facing = options.facing ?? rng.choice(FACINGS);
    const question = options.question
      ? pinnedQuestion(room, options.question)
      : drawQuestion(config.questions, room, rng);
    if (question && (options.things || isInSplit(levelKey({ room, question }), config.split))) {
      return { room, position, facing, question };
    }
    if (!question && options.things) {
      throw new InvalidOptions(
        '/things',
        `no question of the kinds ${config.questions.join(', ')} fits this room`,
      );
    }
  }
}

/**
 * What makes a level the same: things, their cells and the question, wherever the player stands. Questions name directions of
 * the compass, so that a turned room is another level.
 */
export function levelKey({ room, question }: Pick<Level, 'room' | 'question'>): string {
  return `${describeRoom(room)} ${question.text}`;
}

function describeRoom(room: Room): string {
  return room.things.map(({ name, row, col }) => `${name} ${row} ${col}`).join(', ');
}

function randomPlace(size: number, rng: Random): Cell {
  return { row: rng.integer(size), col: rng.integer(size) };
}

function randomRoom({ size, things }: SpatialConfig, rng: Random): Room {
  const names = rng.shuffle(NAMES).slice(0, things);
  const cells = rng.shuffle(Array.from({ length: size * size }, (_, cell) => cell)).slice(0, things);
  return {
    size,
    things: names.map((name, index) => ({
      name,
      row: Math.floor(cells[index] / size),
      col: cells[index] % size,
    })),
  };
}

function pinnedPlace(size: number, [row, col]: readonly number[]): Cell {
  if (row >= size || col >= size) {
    throw new InvalidOptions('/position', `(${row}, ${col}) lies outside the ${size} × ${size} room`);
  }
  return { row, col };
}

function pinnedRoom(size: number, things: NonNullable<SpatialOptions['things']>): Room {
  const room: Room = { size, things };
  for (const [index, thing] of things.entries()) {
    const pointer = `/things/${index}`;
    if (thing.row >= size || thing.col >= size) {
      throw new InvalidOptions(
        pointer,
        `(${thing.row}, ${thing.col}) lies outside the ${size} × ${size} room`,
      );
    }
    if (thingAt(room, thing) !== thing) throw new InvalidOptions(pointer, 'another thing is there');
    if (things.findIndex(other => other.name.toLowerCase() === thing.name.toLowerCase()) !== index) {
      throw new InvalidOptions(pointer, `there is another ${thing.name}`);
    }
  }
  return room;
}

function pinnedQuestion(room: Room, text: string): Question {
  const all = QUESTION_KINDS.flatMap(kind => questionsOf(kind, room));
  const question = all.find(candidate => candidate.text === text);
  if (question) return question;
  throw new InvalidOptions(
    '/question',
    `the room does not allow this question; it allows e.g. ${all[0]?.text}`,
  );
}

import type { Question } from './questions.ts';
import type { Cell, Room, RoomDirection, RoomThing } from './room.ts';

export type SpatialState = {
  readonly room: Room;
  /**
   * Names of the things that the player has seen, in the order of the room's things. Absent in sessions that an earlier
   * version stored: they begin with nothing seen.
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

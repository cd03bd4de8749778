import type { Question } from './questions.ts';
import type { Facing, Place, Room, Thing } from './room.ts';

export type SpatialState = {
  readonly room: Room;
  /** Names of the things that the player has seen, in the order of the room's things. */
  readonly seen: readonly string[];
  readonly position: Place;
  readonly facing: Facing;
  readonly question: Question;
  /** What the last action showed. */
  readonly report: string;
  readonly answer: string | null;
};

/** The things that the player has seen. */
export function seenThings({ room, seen }: Pick<SpatialState, 'room' | 'seen'>): Thing[] {
  return room.things.filter(({ name }) => seen.includes(name));
}

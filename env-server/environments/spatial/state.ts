import type { Question } from './questions.ts';
import type { Facing, Place, Room } from './room.ts';

export type SpatialState = {
  readonly room: Room;
  readonly position: Place;
  readonly facing: Facing;
  readonly question: Question;
  /** What the last action showed. */
  readonly report: string;
  readonly answer: string | null;
};

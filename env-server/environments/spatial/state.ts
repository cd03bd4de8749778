import type { Question } from './questions.ts';
import type { Cell, Room, RoomDirection } from './room.ts';

export type SpatialState = {
  readonly room: Room;
  readonly position: Cell;
  readonly facing: RoomDirection;
  readonly question: Question;
  /** What the last action showed. */
  readonly report: string;
  readonly answer: string | null;
};

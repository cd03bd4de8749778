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
export function offset(from: Cell, to: Cell): { east: number; south: number } {
  return { east: to.col - from.col, south: to.row - from.row };
}

export function walkingDistance(from: Cell, to: Cell): number {
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

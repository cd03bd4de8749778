import type { Random } from '../../../shared/random.ts';
import { isInSplit, type Split } from '../core/splits.ts';
import { overview } from './actions.ts';
import {
  BARE,
  type Household,
  type HouseholdState,
  kindOf,
  LAMP_PLACES,
  NOWHERE,
  RECEPTACLES,
  ROOMS,
  type Task,
  type TaskType,
  THINGS,
  taskText,
} from './household.ts';

/** Additional things beyond the task's, as a share of the receptacles. */
const CLUTTER = 0.9;
const LAMP = 'desklamp';

/** A household with a possible and unfinished task. */
export function generateHousehold(types: readonly TaskType[], split: Split, rng: Random): HouseholdState {
  for (;;) {
    const type = rng.choice(types);
    const room = rng.choice(roomsFor(type));
    const receptacles = furnish(room, rng);
    const task = drawTask(type, room, receptacles, rng);
    const { things, places } = fill(room, receptacles, task, rng);
    const household: Household = { room, receptacles, things, task };
    if (isInSplit(() => householdKey(household, places), split)) return begin(household, places);
  }
}

/** Level identity of a household: the task, the furniture, and the initial place of each thing. */
export function householdKey({ task, receptacles, things }: Household, places: readonly number[]): string {
  return `${taskText(task)} ${receptacles} ${things} ${places}`;
}

/** The first state of an episode: everything closed, off and untreated. */
export function begin(household: Household, places: readonly number[]): HouseholdState {
  const { receptacles, things } = household;
  const state: HouseholdState = {
    household,
    places,
    clean: things.map(() => false),
    warmth: things.map(() => 'none'),
    open: receptacles.map(name => !RECEPTACLES[kindOf(name)].openable),
    lit: things.map(() => false),
    at: NOWHERE,
    report: '',
    won: false,
  };
  return { ...state, report: overview(state) };
}

function roomsFor(type: TaskType): string[] {
  switch (type) {
    case 'examine_in_light':
      return ['bedroom', 'livingroom'];
    case 'clean_and_place':
      return ['kitchen', 'bathroom'];
    case 'heat_and_place':
    case 'cool_and_place':
      return ['kitchen'];
    default:
      return Object.keys(ROOMS);
  }
}

function furnish(room: string, rng: Random): string[] {
  return Object.entries(ROOMS[room].receptacles).flatMap(([kind, [least, most]]) => {
    const count = least + rng.integer(most - least + 1);
    return Array.from({ length: count }, (_, index) => `${kind} ${index + 1}`);
  });
}

function drawTask(type: TaskType, room: string, receptacles: readonly string[], rng: Random): Task {
  const treatment = { clean_and_place: 'clean', heat_and_place: 'heat', cool_and_place: 'cool' } as const;
  const needed = type in treatment ? treatment[type as keyof typeof treatment] : undefined;
  const things = ROOMS[room].things.filter(kind => !needed || THINGS[kind].treatments?.includes(needed));
  const kinds = [...new Set(receptacles.map(kindOf))].filter(
    kind => !BARE.includes(kind) && (!needed || RECEPTACLES[kind].appliance !== needed),
  );
  return {
    type,
    thing: rng.choice(things),
    receptacle: type === 'examine_in_light' ? LAMP : rng.choice(kinds),
  };
}

function fill(
  room: string,
  receptacles: readonly string[],
  task: Task,
  rng: Random,
): { things: string[]; places: number[] } {
  const kinds = [task.thing, ...(task.type === 'pick_two_and_place' ? [task.thing] : [])];
  const clutter = Math.round(receptacles.length * CLUTTER);
  for (let count = 0; count < clutter; count++) kinds.push(rng.choice(ROOMS[room].things));
  const free = receptacles.flatMap((name, index) => (BARE.includes(kindOf(name)) ? [] : [index]));
  const elsewhere = free.filter(index => kindOf(receptacles[index]) !== task.receptacle);
  const counts = new Map<string, number>();
  const things: string[] = [];
  const places: number[] = [];
  const add = (kind: string, place: number): void => {
    const number = (counts.get(kind) ?? 0) + 1;
    counts.set(kind, number);
    things.push(`${kind} ${number}`);
    places.push(place);
  };
  for (const kind of kinds.toSorted()) add(kind, rng.choice(kind === task.thing ? elsewhere : free));
  if (task.type === 'examine_in_light') {
    add(LAMP, rng.choice(free.filter(index => LAMP_PLACES.includes(kindOf(receptacles[index])))));
  }
  return { things, places };
}

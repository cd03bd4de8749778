import { readFileSync } from 'node:fs';

/** Furniture and things of a household. Names follow ALFWorld, so policies trained there know the words. */

interface ReceptacleKind {
  /** While it is closed, its content is hidden and nothing can be put in. */
  readonly openable?: boolean;
  /** Things are in it rather than on it. */
  readonly inside?: boolean;
  /** The treatment it gives to a thing. */
  readonly appliance?: Treatment;
}

export type Treatment = 'clean' | 'heat' | 'cool';

interface ThingKind {
  /** Treatments it allows. */
  readonly treatments?: readonly Treatment[];
  /** It stays in place and gives light when used. */
  readonly lamp?: boolean;
}

interface RoomKind {
  /** Least and greatest number of each kind of receptacle. */
  readonly receptacles: { readonly [kind: string]: readonly [number, number] };
  readonly things: readonly string[];
}

interface Catalog {
  readonly receptacles: { readonly [kind: string]: ReceptacleKind };
  readonly things: { readonly [kind: string]: ThingKind };
  readonly rooms: { readonly [room: string]: RoomKind };
  /** Furniture that may hold a desk lamp. */
  readonly lampPlaces: readonly string[];
  /** Receptacles that are empty at the start and never a task's destination. */
  readonly bare: readonly string[];
}

/** The order of its lists matters: another order makes another household. */
export const {
  receptacles: RECEPTACLES,
  things: THINGS,
  rooms: ROOMS,
  lampPlaces: LAMP_PLACES,
  bare: BARE,
}: Catalog = JSON.parse(readFileSync(new URL('./catalog.json', import.meta.url), 'utf8'));

/** Fixed for an episode and shared by all its states. */
export type Household = {
  readonly room: string;
  /** Names such as `drawer 2`. */
  readonly receptacles: readonly string[];
  readonly things: readonly string[];
  readonly task: Task;
};

export const TASK_TYPES = [
  'pick_and_place',
  'pick_two_and_place',
  'examine_in_light',
  'clean_and_place',
  'heat_and_place',
  'cool_and_place',
] as const;
export type TaskType = (typeof TASK_TYPES)[number];

/** `thing` and `receptacle` are kinds; for `examine_in_light` the receptacle is the kind of lamp. */
export type Task = { readonly type: TaskType; readonly thing: string; readonly receptacle: string };

/** Index in place of a receptacle's when the player carries the thing, or is in the middle of the room. */
export const NOWHERE = -1;

export type HouseholdState = {
  readonly household: Household;
  /** For every thing, the index of its receptacle, or NOWHERE while it is carried. */
  readonly places: readonly number[];
  /** For every thing, its last heating or cooling, and whether it was cleaned. */
  readonly clean: readonly boolean[];
  readonly warmth: readonly ('heat' | 'cool' | 'none')[];
  /** For every receptacle that can be opened, whether it is open; true for others. */
  readonly open: readonly boolean[];
  readonly lit: readonly boolean[];
  /** Receptacle in front of the player, or NOWHERE. */
  readonly at: number;
  /** Text that the last action showed. */
  readonly report: string;
  readonly won: boolean;
};

/** `drawer` of `drawer 2`. */
export function kindOf(name: string): string {
  return name.slice(0, name.lastIndexOf(' '));
}

export function receptacleKind(state: HouseholdState, receptacle: number) {
  return RECEPTACLES[kindOf(state.household.receptacles[receptacle])];
}

/** Index of the thing that the player carries, or NOWHERE. */
export function carried(state: HouseholdState): number {
  return state.places.indexOf(NOWHERE);
}

/** Things that can be seen at a receptacle. */
export function visibleThings(state: HouseholdState, receptacle: number): number[] {
  if (receptacle === NOWHERE || !state.open[receptacle]) return [];
  return state.places.flatMap((place, thing) => (place === receptacle ? [thing] : []));
}

export function allows(thing: string, treatment: Treatment): boolean {
  return THINGS[kindOf(thing)].treatments?.includes(treatment) ?? false;
}

export function isLamp(thing: string): boolean {
  return THINGS[kindOf(thing)].lamp === true;
}

/** Treatment that the task's thing needs before it is put down. */
export function treatmentOf(task: Task): Treatment | undefined {
  switch (task.type) {
    case 'clean_and_place':
      return 'clean';
    case 'heat_and_place':
      return 'heat';
    case 'cool_and_place':
      return 'cool';
    default:
      return undefined;
  }
}

export function isTreated(state: HouseholdState, thing: number, treatment: Treatment): boolean {
  return treatment === 'clean' ? state.clean[thing] : state.warmth[thing] === treatment;
}

/** Things that are in the state and place that the task asks for. */
export function doneThings(state: HouseholdState): number[] {
  const { task, things, receptacles } = state.household;
  const treatment = treatmentOf(task);
  return things.flatMap((name, thing) => {
    const place = state.places[thing];
    const done =
      kindOf(name) === task.thing &&
      place !== NOWHERE &&
      kindOf(receptacles[place]) === task.receptacle &&
      (!treatment || isTreated(state, thing, treatment));
    return done ? [thing] : [];
  });
}

export function isWon(state: HouseholdState): boolean {
  const { task, things } = state.household;
  if (task.type === 'examine_in_light') {
    const thing = carried(state);
    return (
      thing !== NOWHERE &&
      kindOf(things[thing]) === task.thing &&
      visibleThings(state, state.at).some(seen => isLamp(things[seen]) && state.lit[seen])
    );
  }
  return doneThings(state).length >= (task.type === 'pick_two_and_place' ? 2 : 1);
}

/** The task as the player reads it. */
export function taskText({ type, thing, receptacle }: Task): string {
  const where = `${RECEPTACLES[receptacle]?.inside ? 'into' : 'onto'} a ${receptacle}`;
  switch (type) {
    case 'pick_and_place':
      return `Put a ${thing} ${where}.`;
    case 'pick_two_and_place':
      return `Find two things of the kind ${thing} and put both ${where.replace(/ a /, ' the same kind of place: a ')}.`;
    case 'examine_in_light':
      return `Look at a ${thing} in the light of a ${receptacle}.`;
    case 'clean_and_place':
      return `Wash a ${thing} and put it ${where}.`;
    case 'heat_and_place':
      return `Heat a ${thing} and put it ${where}.`;
    case 'cool_and_place':
      return `Cool a ${thing} and put it ${where}.`;
  }
}

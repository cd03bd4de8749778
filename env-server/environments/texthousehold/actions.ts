import type { Random } from '../../../shared/random.ts';
import { isInSplit, type Split } from '../core/splits.ts';
import {
  allows,
  BARE,
  carried,
  type Household,
  type HouseholdState,
  isLamp,
  isWon,
  kindOf,
  LAMP_PLACES,
  NOWHERE,
  RECEPTACLES,
  ROOMS,
  receptacleKind,
  type Task,
  type TaskType,
  THINGS,
  type Treatment,
  taskText,
  visibleThings,
} from './household.ts';

/** All possible actions, in the words that `act` understands. */
export function admissible(state: HouseholdState): string[] {
  if (state.won) return [];
  const { receptacles, things } = state.household;
  const { at } = state;
  const held = carried(state);
  const actions = receptacles.flatMap((name, index) => (index === at ? [] : [`go to ${name}`]));
  if (at !== NOWHERE) {
    const name = receptacles[at];
    const { openable, appliance } = receptacleKind(state, at);
    if (openable) actions.push(`${state.open[at] ? 'close' : 'open'} ${name}`);
    for (const thing of visibleThings(state, at)) {
      if (isLamp(things[thing])) actions.push(`use ${things[thing]}`);
      else if (held === NOWHERE) actions.push(`take ${things[thing]} from ${name}`);
    }
    if (held !== NOWHERE && state.open[at]) actions.push(`put ${things[held]} in/on ${name}`);
    if (held !== NOWHERE && appliance && allows(things[held], appliance)) {
      actions.push(`${appliance} ${things[held]} with ${name}`);
    }
    actions.push(`examine ${name}`);
  }
  if (held !== NOWHERE) actions.push(`examine ${things[held]}`);
  return [...actions, 'inventory', 'look'];
}

/**
 * The canonical spelling of an action: other case and spacing, `move … to …`, `put … in …` and `put … on …` are
 * understood.
 */
export function canonical(action: string): string {
  return action
    .trim()
    .toLowerCase()
    .replaceAll(/\s+/g, ' ')
    .replace(/\.$/, '')
    .replace(/^move (.+) to (.+)$/, 'put $1 in/on $2')
    .replace(/^put (.+) (?:in|on|into|onto) (.+)$/, 'put $1 in/on $2');
}

/** The state after an admissible action in its canonical spelling. */
export function act(state: HouseholdState, action: string): HouseholdState {
  const next = perform(state, action);
  return { ...next, won: isWon(next) };
}

function perform(state: HouseholdState, action: string): HouseholdState {
  const { receptacles, things } = state.household;
  const { at } = state;
  const [verb, ...rest] = action.split(' ');
  const words = rest.join(' ');
  switch (verb) {
    case 'go': {
      const goal = receptacles.indexOf(words.slice('to '.length));
      return { ...state, at: goal, report: `You walk to the ${receptacles[goal]}. ${contents(state, goal)}` };
    }
    case 'open': {
      const opened = { ...state, open: state.open.with(at, true) };
      return { ...opened, report: `The ${words} is open now. ${contents(opened, at)}` };
    }
    case 'close':
      return { ...state, open: state.open.with(at, false), report: `The ${words} is closed now.` };
    case 'take': {
      const thing = words.slice(0, words.indexOf(' from '));
      const places = state.places.with(things.indexOf(thing), NOWHERE);
      return { ...state, places, report: `You take the ${thing} from the ${receptacles[at]}.` };
    }
    case 'put': {
      const held = carried(state);
      const where = receptacleKind(state, at).inside ? 'into' : 'onto';
      const report = `You put the ${things[held]} ${where} the ${receptacles[at]}.`;
      return { ...state, places: state.places.with(held, at), report };
    }
    case 'clean':
    case 'heat':
    case 'cool':
      return treat(state, verb);
    case 'use': {
      const lamp = things.indexOf(words);
      const lit = !state.lit[lamp];
      return {
        ...state,
        lit: state.lit.with(lamp, lit),
        report: `The ${words} is ${lit ? 'on' : 'off'} now.`,
      };
    }
    case 'examine':
      return { ...state, report: words === receptacles[at] ? contents(state, at) : condition(state) };
    case 'inventory': {
      const held = carried(state);
      return { ...state, report: held === NOWHERE ? 'You carry nothing.' : `You carry the ${things[held]}.` };
    }
    default:
      return {
        ...state,
        report:
          at === NOWHERE ? overview(state) : `You stand at the ${receptacles[at]}. ${contents(state, at)}`,
      };
  }
}

function treat(state: HouseholdState, treatment: Treatment): HouseholdState {
  const { things, receptacles } = state.household;
  const held = carried(state);
  const done = { clean: 'wash', heat: 'heat', cool: 'cool' }[treatment];
  return {
    ...state,
    clean: treatment === 'clean' ? state.clean.with(held, true) : state.clean,
    warmth: treatment === 'clean' ? state.warmth : state.warmth.with(held, treatment),
    report: `You ${done} the ${things[held]} with the ${receptacles[state.at]}.`,
  };
}

/** View from the middle of the room. */
function overview({ household }: HouseholdState): string {
  return `You are in the middle of a ${household.room}. Around you are: ${household.receptacles.join(', ')}.`;
}

function contents(state: HouseholdState, receptacle: number): string {
  const { receptacles, things } = state.household;
  if (!state.open[receptacle]) return `The ${receptacles[receptacle]} is closed.`;
  const seen = visibleThings(state, receptacle).map(thing => things[thing]);
  const where = receptacleKind(state, receptacle).inside ? 'In' : 'On';
  return `${where} it you see: ${seen.join(', ') || 'nothing'}.`;
}

function condition(state: HouseholdState): string {
  const held = carried(state);
  const words = [
    state.clean[held] ? 'clean' : '',
    { heat: 'hot', cool: 'cold', none: '' }[state.warmth[held]],
  ].filter(Boolean);
  const looks = words.length > 0 ? words.join(' and ') : 'as you found it';
  return `The ${state.household.things[held]} is ${looks}.`;
}

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

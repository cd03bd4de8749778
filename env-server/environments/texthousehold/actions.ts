import {
  allows,
  carried,
  type HouseholdState,
  isLamp,
  isWon,
  NOWHERE,
  receptacleKind,
  type Treatment,
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
export function overview({ household }: HouseholdState): string {
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

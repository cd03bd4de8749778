import type { Random } from '../../../shared/random.ts';
import type { ReferencePolicy } from '../core/environment.ts';
import { act, admissible } from './actions.ts';
import {
  carried,
  doneThings,
  type HouseholdState,
  isLamp,
  isTreated,
  kindOf,
  NOWHERE,
  receptacleKind,
  treatmentOf,
} from './household.ts';

export const oracle: ReferencePolicy<HouseholdState> = {
  title: 'Knows where everything is and goes straight for it',
  plan(state, count) {
    const actions: string[] = [];
    for (let now = state; !now.won && actions.length < count; now = act(now, actions[actions.length - 1])) {
      actions.push(nextAction(now));
    }
    return actions;
  },
};

export const random: ReferencePolicy<HouseholdState> = {
  title: 'Random admissible actions',
  plan(state, _count, rng: Random) {
    const actions = admissible(state);
    return actions.length > 0 ? [rng.choice(actions)] : [];
  },
};

function nextAction(state: HouseholdState): string {
  const { task, things, receptacles } = state.household;
  const held = carried(state);
  if (held !== NOWHERE && kindOf(things[held]) !== task.thing) return putAnywhere(state, held);
  if (held === NOWHERE) {
    const done = doneThings(state);
    const thing = things.findIndex((name, index) => kindOf(name) === task.thing && !done.includes(index));
    return (
      reach(state, state.places[thing]) ?? `take ${things[thing]} from ${receptacles[state.places[thing]]}`
    );
  }
  if (task.type === 'examine_in_light') {
    const lamp = things.findIndex(isLamp);
    return reach(state, state.places[lamp]) ?? `use ${things[lamp]}`;
  }
  const treatment = treatmentOf(task);
  if (treatment && !isTreated(state, held, treatment)) {
    const appliance = receptacles.findIndex(
      (_, index) => receptacleKind(state, index).appliance === treatment,
    );
    if (state.at !== appliance) return `go to ${receptacles[appliance]}`;
    return `${treatment} ${things[held]} with ${receptacles[appliance]}`;
  }
  const goal = receptacles.findIndex(name => kindOf(name) === task.receptacle);
  return reach(state, goal) ?? `put ${things[held]} in/on ${receptacles[goal]}`;
}

/** The action that brings the player nearer to an open receptacle; undefined when the player stands before it. */
function reach(state: HouseholdState, receptacle: number): string | undefined {
  const name = state.household.receptacles[receptacle];
  if (state.at !== receptacle) return `go to ${name}`;
  return state.open[receptacle] ? undefined : `open ${name}`;
}

function putAnywhere(state: HouseholdState, held: number): string {
  const { things, receptacles } = state.household;
  const place = state.at !== NOWHERE && state.open[state.at] ? state.at : state.open.indexOf(true);
  return reach(state, place) ?? `put ${things[held]} in/on ${receptacles[place]}`;
}

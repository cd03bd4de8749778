import type { Static } from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { textTool } from '../core/actions.ts';
import {
  type ActionTool,
  type Environment,
  InvalidOptions,
  type ObservationFormat,
  type ReferencePolicy,
  stepInfo,
  type Transition,
} from '../core/environment.ts';
import { integerSetting } from '../core/settings.ts';
import { choice, dict, FLAG, LINES, list, type ObservationSpaces, orNull, text } from '../core/spaces.ts';
import { splitSchema } from '../core/splits.ts';
import { act, admissible, begin, canonical, generateHousehold, householdKey } from './actions.ts';
import {
  allows,
  carried,
  doneThings,
  type Household,
  type HouseholdState,
  isLamp,
  isTreated,
  isWon,
  kindOf,
  NOWHERE,
  RECEPTACLES,
  ROOMS,
  receptacleKind,
  TASK_TYPES,
  THINGS,
  taskText,
  treatmentOf,
} from './household.ts';

const oracle: ReferencePolicy<HouseholdState> = {
  title: 'Knows where everything is and goes straight for it',
  plan(state, count) {
    const actions: string[] = [];
    for (let now = state; !now.won && actions.length < count; now = act(now, actions[actions.length - 1])) {
      actions.push(nextAction(now));
    }
    return actions;
  },
};

const random: ReferencePolicy<HouseholdState> = {
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

/** The action that brings the player nearer to an open receptacle; undefined when the player is at it. */
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

const THING = 'Name of a thing, e.g. apple 1';
const FURNITURE = 'Name of a piece of furniture, e.g. fridge 1';

/** A verb of `actions.ts` as a tool. */
const verb = (
  name: string,
  description: string,
  form: string,
  about: { readonly [key: string]: string } = {},
) => textTool(name, description, form, { thing: THING, furniture: FURNITURE, ...about });

const TOOLS: readonly ActionTool[] = [
  verb('go_to', 'Walks to a piece of furniture.', 'go to {furniture}'),
  verb('open', 'Opens the furniture you stand at.', 'open {furniture}'),
  verb('close', 'Closes the furniture you stand at.', 'close {furniture}'),
  verb('take', 'Takes a thing from the furniture you stand at.', 'take {thing} from {furniture}'),
  verb(
    'put',
    'Puts the thing you carry in or on the furniture you stand at.',
    'put {thing} in/on {furniture}',
  ),
  verb('clean', 'Washes the thing you carry.', 'clean {thing} with {furniture}', {
    furniture: 'Name of the sinkbasin you stand at',
  }),
  verb('heat', 'Heats the thing you carry.', 'heat {thing} with {furniture}', {
    furniture: 'Name of the microwave you stand at',
  }),
  verb('cool', 'Cools the thing you carry.', 'cool {thing} with {furniture}', {
    furniture: 'Name of the fridge you stand at',
  }),
  verb('use', 'Switches a lamp on or off.', 'use {thing}', { thing: 'Name of a lamp' }),
  verb('examine', 'Looks at the furniture you stand at or the thing you carry.', 'examine {name}', {
    name: 'Its name',
  }),
  verb('inventory', 'Lists what you carry.', 'inventory'),
  verb('look', 'Shows where you are and what you see.', 'look'),
];

const REWARD_WON = 10;
const MAX_STEPS = 50;
/** Most characters of a report with the possible actions. */
const MAX_OBSERVATION_LENGTH = 8192;

const configSchema = closed({
  tasks: Type.Array(Type.Union(TASK_TYPES.map(type => Type.Literal(type))), {
    default: [...TASK_TYPES],
    minItems: 1,
    uniqueItems: true,
    description: 'Types of task that are drawn.',
  }),
  split: splitSchema,
  max_steps: integerSetting(MAX_STEPS, [1], 'Actions before truncation.'),
});

const name = (kinds: { readonly [kind: string]: object }) =>
  Type.String({ pattern: `^(?:${Object.keys(kinds).join('|')}) [1-9][0-9]?$` });

const optionsSchema = closed({
  room: Type.Optional(Type.Union(Object.keys(ROOMS).map(room => Type.Literal(room)))),
  receptacles: Type.Optional(
    Type.Array(name(RECEPTACLES), {
      minItems: 1,
      maxItems: 60,
      uniqueItems: true,
      description: 'Names such as `drawer 2`.',
    }),
  ),
  things: Type.Optional(
    Type.Record(name(THINGS), Type.String(), {
      description: 'Receptacle of every thing: `{"apple 1": "fridge 1"}`.',
    }),
  ),
  task: Type.Optional(
    closed({
      type: Type.Union(TASK_TYPES.map(type => Type.Literal(type))),
      thing: Type.String({ description: 'Kind of thing, e.g. `apple`.' }),
      receptacle: Type.String({ description: 'Kind of receptacle, or `desklamp`.' }),
    }),
  ),
});

type TextHouseholdConfig = Static<typeof configSchema>;
type TextHouseholdOptions = Static<typeof optionsSchema>;

/** TextHousehold-v0: a generated household described in text, with ALFWorld's six task types. */
export const textHousehold = {
  spec: {
    id: 'TextHousehold-v0',
    aliases: ['ALFWorld-v0'],
    title: 'Household tasks in text',
    description: [
      'A room with furniture, some of it closed, and things in and on it. The player walks between pieces of furniture, opens them, takes one thing at a time, washes, heats or cools it, puts it down, or switches a lamp on. There are six types of task: put one thing or two of a kind somewhere; wash, heat or cool a thing and put it somewhere; look at a thing in the light of a lamp.',
      '',
      `Doing the task pays ${REWARD_WON} and ends the episode; everything else pays 0. An action that is not listed changes nothing and is invalid. \`move … to …\`, \`put … in …\` and \`put … on …\` also work.`,
      '',
      'Rooms, furniture, things and tasks are generated in the style of ALFWorld. `info` has `won` and `admissible`, the number of possible actions. `info.rewards` has the reward as `done`, and next to it the change of the number of things that are of the task’s kind and carried (`taken`), washed, heated or cooled as it asks (`treated`), or where they belong (`placed`).',
    ].join('\n'),
    tags: ['household', 'text', 'partial observation', 'planning'],
    configSchema,
    optionsSchema,
    presets: Object.fromEntries(TASK_TYPES.map(type => [type, { tasks: [type] }])),
    observationSpace: { type: 'Text', maxLength: MAX_OBSERVATION_LENGTH },
    actionSpace: { type: 'Text', minLength: 1, maxLength: 200, charset: LINES },
    observationFormats: ['text', 'structured'],
    rewardRange: [0, REWARD_WON],
    rewardThreshold: REWARD_WON,
    knownOptimum: { success: 1, source: 'reference policy `oracle`' },
    maxEpisodeSteps: MAX_STEPS,
    ends: { task_done: 'Did the task' },
    exampleAction: 'go to countertop 1',
    history: [{ version: 0, change: 'First version.' }],
  },

  describe: (_config: TextHouseholdConfig) => ({
    instruction:
      'You are in a household and have a task. Walk to pieces of furniture, look into them, take things and bring them where they belong. You can carry one thing at a time. Choose from the possible actions.',
    actionFormat: 'one of the possible actions, word for word',
  }),

  observationSpaces: (): ObservationSpaces => {
    const line = text(MAX_OBSERVATION_LENGTH);
    return {
      text: line,
      structured: dict({
        task: dict({ type: choice(...TASK_TYPES), thing: line, receptacle: line }),
        room: line,
        at: orNull(line),
        carries: orNull(line),
        report: line,
        receptacles: list(dict({ name: line, open: FLAG })),
        admissible: list(line),
        won: FLAG,
      }),
    };
  },

  reset(config: TextHouseholdConfig, rng: Random, options: JsonObject): HouseholdState {
    return pinnedHousehold(options) ?? generateHousehold(config.tasks, config.split, rng);
  },

  step(state: HouseholdState, action: Json): Transition<HouseholdState> {
    const choices = admissible(state);
    const wanted = typeof action === 'string' ? canonical(action) : '';
    const valid = choices.includes(wanted);
    if (state.won || !valid) {
      const report = state.won ? state.report : 'Nothing happens.';
      return transition(state, { ...state, report }, valid, false, choices.length);
    }
    const next = act(state, wanted);
    const effective = !/^(?:examine|inventory|look)/.test(wanted) || next.report !== state.report;
    return transition(state, next, true, effective, admissible(next).length);
  },

  levelKey: ({ household, places }: HouseholdState) => householdKey(household, places),

  observe(state: HouseholdState, format: ObservationFormat): Json {
    const { household, report } = state;
    if (format === 'structured') return structured(state);
    const lines = [`Task: ${taskText(household.task)}`, report];
    lines.push(state.won ? 'The task is done.' : `Possible actions: ${admissible(state).join(', ')}`);
    return lines.join('\n');
  },

  validActions: admissible,

  tools: TOOLS,

  references: { oracle, random },
} satisfies Environment<TextHouseholdConfig, HouseholdState>;

function transition(
  before: HouseholdState,
  state: HouseholdState,
  valid: boolean,
  effective: boolean,
  choices: number,
): Transition<HouseholdState> {
  const { won } = state;
  const done = won && !before.won ? REWARD_WON : 0;
  return {
    state,
    reward: done,
    terminated: won,
    info: stepInfo(won, valid, effective, won && 'task_done', {
      won,
      admissible: choices,
      rewards: { ...progressOf(before, state), done },
    }),
  };
}

/** Changes of how far the task is, so that going back and forth earns nothing. */
function progressOf(before: HouseholdState, state: HouseholdState) {
  const [from, to] = [countsOf(before), countsOf(state)];
  return {
    taken: to.taken - from.taken,
    treated: to.treated - from.treated,
    placed: to.placed - from.placed,
  };
}

/** Things of the task's kind that are carried, that had its treatment, and that are where they belong. */
function countsOf(state: HouseholdState) {
  const { task, things } = state.household;
  const treatment = treatmentOf(task);
  const wanted = things.flatMap((name, thing) => (kindOf(name) === task.thing ? [thing] : []));
  return {
    taken: Number(wanted.includes(carried(state))),
    treated: treatment ? wanted.filter(thing => isTreated(state, thing, treatment)).length : 0,
    placed: doneThings(state).length,
  };
}

/** Everything the player knows or could see; the contents of closed furniture are left out. */
function structured(state: HouseholdState): Json {
  const { household, at, open } = state;
  const held = carried(state);
  const at_ = at === NOWHERE ? null : household.receptacles[at];
  return {
    task: household.task,
    room: household.room,
    at: at_,
    carries: held === NOWHERE ? null : household.things[held],
    report: state.report,
    receptacles: household.receptacles.map((receptacle, index) => ({ name: receptacle, open: open[index] })),
    admissible: admissible(state),
    won: state.won,
  };
}

function pinnedHousehold(options: TextHouseholdOptions): HouseholdState | null {
  const { room = 'room', receptacles, things, task } = options;
  if (!receptacles && !things && !task) return null;
  if (!receptacles || !things || !task) {
    throw new InvalidOptions('', 'receptacles, things and task must be given together');
  }
  const names = Object.keys(things);
  const places = names.map(thing => {
    const place = receptacles.indexOf(things[thing]);
    if (place < 0)
      throw new InvalidOptions(`/things/${thing}`, `there is no ${things[thing]} among the receptacles`);
    return place;
  });
  const household: Household = { room, receptacles, things: names, task };
  const fault = faultOf(household);
  if (fault) throw new InvalidOptions('/task', fault);
  const state = begin(household, places);
  if (isWon(state)) throw new InvalidOptions('/task', 'the task is done from the start');
  return state;
}

/** Reason why a pinned task is impossible, or null. */
function faultOf({ task, things, receptacles }: Household): string | null {
  const needed = task.type === 'pick_two_and_place' ? 2 : 1;
  const ofKind = things.filter(thing => kindOf(thing) === task.thing);
  if (ofKind.length < needed) return `needs ${needed} of the kind ${task.thing}, there are ${ofKind.length}`;
  if (isLamp(ofKind[0])) return `a ${task.thing} cannot be carried`;
  if (task.type === 'examine_in_light') return things.some(isLamp) ? null : 'there is no desklamp';
  const treatment = treatmentOf(task);
  if (treatment && !allows(ofKind[0], treatment))
    return `${treatment} is nothing that can be done to a ${task.thing}`;
  if (treatment && !receptacles.some(receptacle => RECEPTACLES[kindOf(receptacle)].appliance === treatment)) {
    return `nothing in the room can ${treatment}`;
  }
  return receptacles.some(receptacle => kindOf(receptacle) === task.receptacle)
    ? null
    : `there is no ${task.receptacle}`;
}

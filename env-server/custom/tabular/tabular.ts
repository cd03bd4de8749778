import type { Static } from 'typebox';
import type { Json } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import type { Sliced } from '../../../shared/slices.ts';
import { namedActions } from '../../environments/core/actions.ts';
import {
  type AnyEnvironment,
  type Ends,
  type Environment,
  type EnvironmentSpec,
  InvalidOptions,
  type ReferencePolicy,
  stepInfo,
} from '../../environments/core/environment.ts';
import { COUNT, charactersOf, choice, dict, list } from '../../environments/core/spaces.ts';
import type { TabularDefinition } from '../definitions/definition.ts';
import { aboutSpec, DEFAULT_MAX_STEPS, stepsSetting } from '../definitions/definition-parts.ts';
import { branchOf, compileTables, type TableState, type Tables, warningsOf } from './tables.ts';

/** Just under 1, so that the shorter of two equally good ways wins. */
const DISCOUNT = 1 - 1e-9;
/** States and outcomes that value iteration may visit in total: about ten milliseconds. */
const WORK = 4_000_000;
/** Actions that a plan may hold: 2 MB. */
const MAX_PLAN = 1_000_000;
const SETTLED = 1e-12;
const NOTHING_TO_DO = -1;
/** States visited between two yields. */
const SLICE = 1000;

/** Plan with the highest expected return in the remaining steps. */
interface TabularPlan {
  /** The best action; −1 where there is none. */
  best(state: number, stepsToGo: number): number;
  /** Probability that an episode of this many steps succeeds under the plan. */
  readonly success: number;
}

/**
 * Value iteration over a finite horizon. Stops early where the values settle or the work becomes too much; with more
 * steps left than stages the last stage decides.
 */
function* planFor(tables: Tables, horizon: number): Sliced<TabularPlan> {
  const { states, start } = tables;
  const mostStages = Math.max(1, Math.min(horizon, Math.floor(WORK / (states.length + tables.to.length))));
  const stages: Int16Array[] = [];
  let planned = 0;
  let values = new Float64Array(states.length);
  let successes = Float64Array.from(states, state => (state.success ? 1 : 0));
  while (stages.length < mostStages && planned + states.length <= Math.max(MAX_PLAN, states.length)) {
    const nextValues = new Float64Array(states.length);
    const nextSuccesses = new Float64Array(states.length);
    const best = new Int16Array(states.length).fill(NOTHING_TO_DO);
    const before = stages.at(-1);
    let moved = 0;
    let changed = before === undefined;
    for (let index = 0; index < states.length; index++) {
      if (index % SLICE === 0) yield;
      const { valid, firstBranch } = states[index];
      if (valid.length === 0) {
        nextSuccesses[index] = successes[index];
        continue;
      }
      let most = Number.NEGATIVE_INFINITY;
      let taken = firstBranch;
      for (let branch = firstBranch; branch < firstBranch + valid.length; branch++) {
        const value = expected(tables, branch, values);
        if (value > most) {
          most = value;
          taken = branch;
        }
      }
      best[index] = valid[taken - firstBranch];
      changed ||= before?.[index] !== best[index];
      nextValues[index] = most * DISCOUNT;
      const success = successOf(tables, taken, successes);
      nextSuccesses[index] = success;
      moved = Math.max(
        moved,
        Math.abs(nextValues[index] - values[index]),
        Math.abs(success - successes[index]),
      );
    }
    stages.push(changed || !before ? best : before);
    if (changed) planned += states.length;
    values = nextValues;
    successes = nextSuccesses;
    if (moved < SETTLED) break;
  }
  let success = 0;
  start.states.forEach((state, index) => {
    success += start.probability[index] * successes[state];
  });
  return {
    best: (state, stepsToGo) => stages[Math.min(Math.max(stepsToGo, 1), stages.length) - 1][state],
    success: Math.min(1, success),
  };
}

function expected({ from, to, probability, reward }: Tables, branch: number, values: Float64Array): number {
  let value = 0;
  for (let i = from[branch]; i < from[branch + 1]; i++) value += probability[i] * (reward[i] + values[to[i]]);
  return value;
}

function successOf({ from, to, probability }: Tables, branch: number, successes: Float64Array): number {
  let success = 0;
  for (let i = from[branch]; i < from[branch + 1]; i++) success += probability[i] * successes[to[i]];
  return success;
}

const MAX_VOCABULARY = 2000;

const optionsSchema = closed({
  start: Type.Optional(Type.String({ description: 'Name of the state to start in.' })),
});
type Options = Static<typeof optionsSchema>;
type Config = { readonly max_steps: number };

type State = { readonly at: string; readonly steps: number; readonly max_steps: number };

/**
 * A Markov decision process from its definition. Episodes end in states without transitions. Its reference `optimal`
 * comes from value iteration over the remaining steps.
 * @throws Problem `invalid_request` with a JSON pointer to every fault
 */
export function* tabularEnvironment(
  envId: string,
  definition: TabularDefinition,
): Sliced<{ environment: AnyEnvironment; warnings: readonly string[] }> {
  const tables = yield* compileTables(definition);
  const warnings = yield* warningsOf(tables);
  const maxSteps = definition.max_episode_steps ?? DEFAULT_MAX_STEPS;
  const plan = yield* planFor(tables, maxSteps);
  const spec = specOf(envId, definition, tables, maxSteps, plan.success);
  const actionsIn = ({ valid }: TableState) => valid.map(action => definition.actions[action]);
  const actions = namedActions(definition.actions, 0);
  const tableState = ({ at }: State): TableState => tables.states[tables.indexOf.get(at) as number];
  const vocabulary = vocabularyOf(tables);

  const environment: Environment<Config, State> = {
    spec,

    observationSpaces: () => ({
      text: spec.observationSpace,
      structured: dict({
        state: choice(...tables.states.map(({ name }) => name)),
        steps: COUNT,
        valid_actions: list(choice(...definition.actions)),
      }),
    }),

    describe: () => ({
      instruction: definition.instruction,
      actions: definition.actions,
      ...(vocabulary && { vocabulary }),
    }),

    reset(config, rng, options) {
      return { at: startOf(tables, rng, options as Options), steps: 0, max_steps: config.max_steps };
    },

    step(state, action, rng) {
      const here = tableState(state);
      const branch = branchOf(here, actions.indexOf(action));
      if (branch === undefined) {
        return { state, reward: 0, terminated: false, info: stepInfo(here.success, false, false) };
      }
      const outcome = drawn(tables.upTo, tables.from[branch], tables.from[branch + 1], rng);
      const next = tables.states[tables.to[outcome]];
      return {
        state: { ...state, at: next.name, steps: state.steps + 1 },
        reward: tables.reward[outcome],
        terminated: next.valid.length === 0,
        info: stepInfo(next.success, true, next.name !== state.at, next.end),
      };
    },

    observe(state, format) {
      const here = tableState(state);
      if (format !== 'structured') return here.text;
      return { state: here.name, steps: state.steps, valid_actions: actionsIn(here) };
    },

    validActions: state => actionsIn(tableState(state)),

    references: {
      optimal: planAhead(tables, 'Value iteration over the steps that are left', (at, stepsToGo) =>
        plan.best(at, stepsToGo),
      ),
      random: planAhead(tables, 'Uniformly random valid actions', (at, _stepsToGo, rng) => {
        const { valid } = tables.states[at];
        return valid.length === 0 ? -1 : rng.choice(valid);
      }),
    },
  };
  return { environment: environment as unknown as AnyEnvironment, warnings };
}

function specOf(
  envId: string,
  definition: TabularDefinition,
  tables: Tables,
  maxSteps: number,
  optimum: number,
): EnvironmentSpec {
  const texts = tables.states.map(({ text }) => text);
  return {
    ...aboutSpec(envId, 'tabular', definition, definition.instruction),
    configSchema: closed({ max_steps: stepsSetting(maxSteps) }),
    optionsSchema,
    observationSpace: {
      type: 'Text',
      maxLength: Math.max(1, ...texts.map(text => text.length)),
      charset: charactersOf(...texts),
    },
    actionSpace: namedActions(definition.actions, 0).space,
    observationFormats: ['text', 'structured'],
    rewardRange: tables.rewardRange,
    knownOptimum: {
      success: optimum,
      source: 'value iteration: success of the policy that earns the most',
    },
    maxEpisodeSteps: maxSteps,
    ends: endsIn(tables, definition),
    exampleAction: definition.actions[tables.states[tables.start.states[0]].valid[0]],
  };
}

/** Ends named by states, with the definition's descriptions or default ones. */
function endsIn({ states }: Tables, { ends }: TabularDefinition): Ends {
  const named = states.flatMap(({ end }) => (end === undefined ? [] : [[end, end.replaceAll('_', ' ')]]));
  return { ...Object.fromEntries(named), ...ends };
}

/**
 * Plans by following the likeliest outcome of every action.
 * @param choose the action in a state; negative where there is none
 */
function planAhead(
  tables: Tables,
  title: string,
  choose: (at: number, stepsToGo: number, rng: Random) => number,
): ReferencePolicy<State> {
  return {
    title,
    plan(state, count, rng) {
      const planned: Json[] = [];
      let at = tables.indexOf.get(state.at) as number;
      for (let steps = state.steps; steps < state.max_steps && planned.length < count; steps++) {
        const action = choose(at, state.max_steps - steps, rng);
        if (action < 0) break;
        planned.push(tables.actions[action]);
        const branch = branchOf(tables.states[at], action);
        if (branch === undefined) break;
        at = likeliest(tables, branch);
      }
      return planned;
    },
  };
}

/** The position in [`first`, `end`) that a draw selects; a single position needs no draw. */
function drawn(upTo: Float64Array, first: number, end: number, rng: Random): number {
  if (end - first === 1) return first;
  const draw = rng.float();
  let index = first;
  while (draw >= upTo[index]) index++;
  return index;
}

/** Most likely outcome of an action. */
function likeliest({ from, to, probability }: Tables, branch: number): number {
  let best = from[branch];
  for (let i = best + 1; i < from[branch + 1]; i++) if (probability[i] > probability[best]) best = i;
  return to[best];
}

function startOf(tables: Tables, rng: Random, { start }: Options): string {
  if (start === undefined) {
    const { states, upTo } = tables.start;
    return tables.states[states[drawn(upTo, 0, states.length, rng)]].name;
  }
  const index = tables.indexOf.get(start);
  if (index === undefined) throw new InvalidOptions('/start', `there is no state "${start}"`);
  if (tables.states[index].valid.length === 0) {
    throw new InvalidOptions('/start', `nothing can be done in "${start}"`);
  }
  return start;
}

/** Every word of texts and actions; undefined where there are too many for a word-level tokenizer. */
function vocabularyOf({ states, actions }: Tables): string[] | undefined {
  const words = new Set(actions);
  for (const { text } of states) {
    for (const word of text.split(/\s+/)) if (word !== '') words.add(word);
    if (words.size > MAX_VOCABULARY) return undefined;
  }
  return [...words];
}

import { DefinitionFaults, escapePointer } from '../fault.ts';
import type { Outcome, TabularDefinition } from './definition.ts';

/** How far a sum of probabilities may be from 1. */
const SUM_TOLERANCE = 1e-6;
const MOST_STATES = 20_000;
const MOST_OUTCOMES = 400_000;

/** The outcomes of one action in one state; a draw u in [0, 1) takes the first whose `upTo` exceeds it. */
export interface Branch {
  readonly to: Int32Array;
  readonly upTo: Float64Array;
  readonly probability: Float64Array;
  readonly reward: Float64Array;
}

export interface TableState {
  readonly name: string;
  readonly text: string;
  readonly success: boolean;
  /** By action; undefined where the action is invalid. */
  readonly branches: readonly (Branch | undefined)[];
  /** Ids of the actions that are valid here; none where the episode ends. */
  readonly valid: readonly number[];
}

/** A Markov decision process with states and actions as numbers. */
export interface Tables {
  readonly actions: readonly string[];
  readonly states: readonly TableState[];
  readonly indexOf: ReadonlyMap<string, number>;
  readonly start: {
    readonly states: Int32Array;
    readonly upTo: Float64Array;
    readonly probability: Float64Array;
  };
  /** Outcomes in all. */
  readonly outcomes: number;
  readonly rewardRange: readonly [number, number];
}

/**
 * Compiles a definition that fits its schema.
 * @throws Problem `invalid_request` with a JSON pointer to every fault: unknown states and actions, probabilities
 * that do not sum to 1, names that occur twice, a start where nothing can be done
 */
export function compileTables(definition: TabularDefinition): Tables {
  const faults = new DefinitionFaults();
  const entries = Object.entries(definition.states);
  const indexOf = new Map(entries.map(([name], index) => [name, index]));
  const actionIds = actionIdsOf(definition.actions, faults);
  if (entries.length > MOST_STATES) {
    faults.add('/states', `has ${entries.length} states; at most ${MOST_STATES} are taken`);
    faults.raise();
  }
  let outcomes = 0;
  let least = 0;
  let most = 0;
  const states = entries.map(([name, { text, success = false, transitions = {} }]): TableState => {
    const branches = new Array<Branch | undefined>(definition.actions.length).fill(undefined);
    for (const [action, given] of Object.entries(transitions)) {
      const pointer = `/states/${escapePointer(name)}/transitions/${escapePointer(action)}`;
      const id = actionIds.get(action);
      if (id === undefined) {
        faults.add(pointer, `unknown action "${action}"; the actions are ${some(definition.actions)}`);
        continue;
      }
      outcomes += given.length;
      for (const { reward = 0 } of given) {
        least = Math.min(least, reward);
        most = Math.max(most, reward);
      }
      branches[id] = compileBranch(given, indexOf, pointer, faults);
    }
    const valid = branches.flatMap((branch, id) => (branch ? [id] : []));
    return { name, text, success, branches, valid };
  });
  if (outcomes > MOST_OUTCOMES) {
    faults.add('/states', `have ${outcomes} outcomes in all; at most ${MOST_OUTCOMES} are taken`);
  }
  const start = compileStart(definition.start, states, indexOf, faults);
  faults.raise();
  return { actions: definition.actions, states, indexOf, start, outcomes, rewardRange: [least, most] };
}

function actionIdsOf(names: readonly string[], faults: DefinitionFaults): Map<string, number> {
  const ids = new Map<string, number>();
  const folded = new Set<string>();
  names.forEach((name, id) => {
    const plain = name.trim().toLowerCase();
    if (folded.has(plain)) faults.add(`/actions/${id}`, `"${name}" occurs twice (case does not count)`);
    folded.add(plain);
    ids.set(name, id);
  });
  return ids;
}

function compileBranch(
  outcomes: readonly Outcome[],
  indexOf: ReadonlyMap<string, number>,
  pointer: string,
  faults: DefinitionFaults,
): Branch {
  outcomes.forEach(({ to }, index) => {
    if (!indexOf.has(to)) faults.add(`${pointer}/${index}/to`, unknownState(to, indexOf));
  });
  const probability = Float64Array.from(outcomes, outcome => outcome.probability ?? 1);
  return {
    to: Int32Array.from(outcomes, ({ to }) => indexOf.get(to) ?? -1),
    probability,
    upTo: cumulative(probability, pointer, faults),
    reward: Float64Array.from(outcomes, ({ reward = 0 }) => reward),
  };
}

function compileStart(
  given: TabularDefinition['start'],
  states: readonly TableState[],
  indexOf: ReadonlyMap<string, number>,
  faults: DefinitionFaults,
): Tables['start'] {
  const entries = Object.entries(given);
  for (const [name] of entries) {
    const pointer = `/start/${escapePointer(name)}`;
    const index = indexOf.get(name);
    if (index === undefined) faults.add(pointer, unknownState(name, indexOf));
    else if (states[index].valid.length === 0) {
      faults.add(pointer, `an episode cannot start in "${name}": nothing can be done there`);
    }
  }
  const probability = Float64Array.from(entries, ([, share]) => share);
  return {
    states: Int32Array.from(entries, ([name]) => indexOf.get(name) ?? -1),
    probability,
    upTo: cumulative(probability, '/start', faults),
  };
}

/** Running sums; the last is exactly 1. */
function cumulative(probability: Float64Array, pointer: string, faults: DefinitionFaults): Float64Array {
  let sum = 0;
  const upTo = probability.map(share => {
    sum += share;
    return sum;
  });
  if (Math.abs(sum - 1) > SUM_TOLERANCE) {
    faults.add(pointer, `the probabilities sum to ${Number(sum.toPrecision(9))}, not to 1`);
  }
  upTo[upTo.length - 1] = 1;
  return upTo;
}

/** The position that a draw from [0, 1) takes. */
export function drawn(upTo: Float64Array, draw: number): number {
  let index = 0;
  while (draw >= upTo[index]) index++;
  return index;
}

const MOST_NAMED = 8;

function some(names: Iterable<string>): string {
  const list = [...names];
  const more = list.length > MOST_NAMED ? ` and ${list.length - MOST_NAMED} more` : '';
  return list.slice(0, MOST_NAMED).join(', ') + more;
}

function unknownState(name: string, indexOf: ReadonlyMap<string, number>): string {
  return `unknown state "${name}"; the states are ${some(indexOf.keys())}`;
}

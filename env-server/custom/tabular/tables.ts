import type { Sliced } from '../../../shared/slices.ts';
import { MAX_STATE_NAME_LENGTH, type TabularDefinition } from '../definitions/definition.ts';
import { DefinitionFaults, escapePointer } from '../definitions/fault.ts';

/** Largest accepted deviation of a sum of probabilities from 1. */
const SUM_TOLERANCE = 1e-6;
const MAX_OUTCOMES = 400_000;
const MAX_NAMED = 8;
/** Characters of an unknown name that an error repeats. */
const MAX_SHOWN_LENGTH = 100;
/** States compiled between two yields. */
const SLICE = 64;

export interface TableState {
  readonly name: string;
  readonly text: string;
  readonly success: boolean;
  /** Name of the end of an episode that ends in this state. */
  readonly end?: string;
  /** Ids of the valid actions, ascending; none where the episode ends. */
  readonly valid: readonly number[];
  /** Index of the first valid action's branch; those of the others follow. */
  readonly firstBranch: number;
}

/**
 * A Markov decision process with states, actions and branches as numbers. A branch is one action in one state; its
 * outcomes are `from[branch]` to `from[branch + 1]` of the outcome arrays.
 */
export interface Tables {
  readonly actions: readonly string[];
  readonly states: readonly TableState[];
  readonly indexOf: ReadonlyMap<string, number>;
  readonly start: {
    readonly states: Int32Array;
    readonly upTo: Float64Array;
    readonly probability: Float64Array;
  };
  readonly from: Int32Array;
  readonly to: Int32Array;
  /** Running sums within a branch, the last exactly 1: a draw u in [0, 1) takes the first outcome with a larger sum. */
  readonly upTo: Float64Array;
  readonly probability: Float64Array;
  readonly reward: Float64Array;
  readonly rewardRange: readonly [number, number];
}

/** The branch of an action in a state; undefined where it is invalid. */
export function branchOf({ valid, firstBranch }: TableState, action: number): number | undefined {
  const index = valid.indexOf(action);
  return index < 0 ? undefined : firstBranch + index;
}

/**
 * Compiles a definition that fits its schema.
 * @throws Problem `invalid_request` with a JSON pointer to every fault: unknown states and actions, probabilities that
 * do not sum to 1, repeated names, a start without actions
 */
export function* compileTables(definition: TabularDefinition): Sliced<Tables> {
  const faults = new DefinitionFaults();
  const entries = Object.entries(definition.states);
  const [branches, outcomes] = yield* measured(entries, faults);
  const indexOf = new Map(entries.map(([name], index) => [name, index]));
  const actionIds = actionIdsOf(definition.actions, faults);
  const tables = {
    from: new Int32Array(branches + 1),
    to: new Int32Array(outcomes),
    upTo: new Float64Array(outcomes),
    probability: new Float64Array(outcomes),
    reward: new Float64Array(outcomes),
  };
  const states: TableState[] = [];
  let branch = 0;
  let outcome = 0;
  for (const [name, { text, success = false, ended_by: end, transitions = {} }] of entries) {
    const pointer = `/states/${escapePointer(name)}`;
    const given = Object.entries(transitions).flatMap(([action, list]) => {
      const id = actionIds.get(action);
      if (id !== undefined) return [{ id, action, list }];
      const known = some(definition.actions);
      const detail = `unknown action "${shown(action)}"; the actions are ${known}`;
      faults.add(`${pointer}/transitions/${escapePointer(action)}`, detail);
      return [];
    });
    given.sort((one, other) => one.id - other.id);
    if (end !== undefined && given.length > 0) {
      faults.add(`${pointer}/ended_by`, 'no episode ends in a state with transitions: leave one of them out');
    }
    states.push({
      name,
      text,
      success,
      ...(end !== undefined && { end }),
      valid: given.map(({ id }) => id),
      firstBranch: branch,
    });
    for (const { action, list } of given) {
      const at = `${pointer}/transitions/${escapePointer(action)}`;
      const first = outcome;
      tables.from[branch++] = first;
      list.forEach(({ to, probability = 1, reward = 0 }, index) => {
        const target = indexOf.get(to);
        if (target === undefined) faults.add(`${at}/${index}/to`, () => unknownState(to, indexOf));
        tables.to[outcome] = target ?? 0;
        tables.probability[outcome] = probability;
        tables.reward[outcome++] = reward;
      });
      const sums = cumulative(tables.probability.subarray(first, outcome), at, faults);
      tables.upTo.set(sums, first);
    }
    tables.from[branch] = outcome;
    if (faults.full) faults.raise();
    if (states.length % SLICE === 0) yield;
  }
  const start = compileStart(definition.start, states, indexOf, faults);
  faults.raise();
  const rewardRange = [0, 0];
  for (const reward of tables.reward) {
    if (reward < rewardRange[0]) rewardRange[0] = reward;
    if (reward > rewardRange[1]) rewardRange[1] = reward;
  }
  const [least, most] = rewardRange;
  return { actions: definition.actions, states, indexOf, start, ...tables, rewardRange: [least, most] };
}

/** Number of branches and outcomes; rejects tables that are too large before memory is allocated for them. */
function* measured(
  entries: readonly (readonly [string, TabularDefinition['states'][string]])[],
  faults: DefinitionFaults,
): Sliced<[branches: number, outcomes: number]> {
  let branches = 0;
  let outcomes = 0;
  for (const [index, [name, { transitions = {} }]] of entries.entries()) {
    if (name.length > MAX_STATE_NAME_LENGTH) {
      const detail = `the name has ${name.length} characters; at most ${MAX_STATE_NAME_LENGTH} are taken`;
      faults.add(`/states/${escapePointer(shown(name))}`, detail);
    }
    for (const list of Object.values(transitions)) {
      branches++;
      outcomes += list.length;
    }
    if (index % SLICE === 0) yield;
  }
  if (outcomes > MAX_OUTCOMES) {
    faults.add('/states', `have ${outcomes} outcomes in all; at most ${MAX_OUTCOMES} are taken`);
  }
  faults.raise();
  return [branches, outcomes];
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

function compileStart(
  given: TabularDefinition['start'],
  states: readonly TableState[],
  indexOf: ReadonlyMap<string, number>,
  faults: DefinitionFaults,
): Tables['start'] {
  const entries = Object.entries(given);
  for (const [name] of entries) {
    const pointer = `/start/${escapePointer(shown(name))}`;
    const index = indexOf.get(name);
    if (index === undefined) faults.add(pointer, () => unknownState(name, indexOf));
    else if (states[index].valid.length === 0) {
      faults.add(pointer, `an episode cannot start in "${name}": nothing can be done there`);
    }
    if (faults.full) faults.raise();
  }
  const probability = Float64Array.from(entries, ([, share]) => share);
  return {
    states: Int32Array.from(entries, ([name]) => indexOf.get(name) ?? 0),
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
  if (!(Math.abs(sum - 1) <= SUM_TOLERANCE)) {
    faults.add(pointer, `the probabilities sum to ${Number(sum.toPrecision(9))}, not to 1`);
  }
  upTo[upTo.length - 1] = 1;
  return upTo;
}

/** Warnings about a process: episodes that only the step limit ends, and unreachable states. */
export function* warningsOf(tables: Tables): Sliced<string[]> {
  const { states, start, from, to } = tables;
  const reached = new Uint8Array(states.length);
  const queue: number[] = [];
  const reach = (state: number) => {
    if (reached[state] === 1) return;
    reached[state] = 1;
    queue.push(state);
  };
  start.states.forEach(reach);
  let ends = false;
  // It grows while it is walked.
  for (let next = 0; next < queue.length; next++) {
    const { valid, firstBranch } = states[queue[next]];
    if (valid.length === 0) ends = true;
    for (let i = from[firstBranch]; valid.length > 0 && i < from[firstBranch + valid.length]; i++)
      reach(to[i]);
    if (next % SLICE === 0) yield;
  }
  const warnings: string[] = [];
  if (!ends) {
    warnings.push('no state that ends the episode can be reached from the start: every episode is truncated');
  }
  if (queue.length < states.length) {
    const lost = states.filter((_, index) => reached[index] === 0).map(({ name }) => name);
    warnings.push(
      `${lost.length} of ${states.length} states cannot be reached from the start, only begun in with options.start: ${some(lost)}`,
    );
  }
  return warnings;
}

function some(names: Iterable<string>): string {
  const first: string[] = [];
  let more = 0;
  for (const name of names) {
    if (first.length < MAX_NAMED) first.push(shown(name));
    else more++;
  }
  return first.join(', ') + (more > 0 ? ` and ${more} more` : '');
}

function shown(name: string): string {
  return name.length > MAX_SHOWN_LENGTH ? `${name.slice(0, MAX_SHOWN_LENGTH).toWellFormed()}…` : name;
}

function unknownState(name: string, indexOf: ReadonlyMap<string, number>): string {
  return `unknown state "${shown(name)}"; the states are ${some(indexOf.keys())}`;
}

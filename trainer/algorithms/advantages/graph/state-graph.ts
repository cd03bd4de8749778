import { positionsBy, unbiasedStd } from '../../statistics.ts';
import type { AdvantageSequence } from '../estimator.ts';
import { requireWholeEpisodes, STD_FLOOR } from '../groups.ts';
import { turnEnds, turnRewards } from '../turns.ts';

/** The node that the last turn of a successful episode leads to. A symbol, since a state could have any text. */
export const GOAL = Symbol('goal');
export type StateNode = string | typeof GOAL;

/** A turn of a group's episode: an edge from the state before it to the state after it. */
export interface GraphTurn {
  /** Batch position of the sequence, and number of the turn in it. */
  readonly sequence: number;
  readonly turn: number;
  readonly from: string;
  readonly to: StateNode;
  readonly reward: number;
  /** An action was carried out. */
  readonly valid: boolean;
  readonly isLast: boolean;
  readonly success: boolean;
  /** Turns of its episode. */
  readonly turns: number;
  /** Sum of its episode's rewards. */
  readonly episodeReturn: number;
}

/** The turns of each group of a batch, episode after episode. @throws RangeError where an episode is cut into sequences */
export function groupTurns(sequences: readonly AdvantageSequence[], name: string): GraphTurn[][] {
  requireWholeEpisodes(name, sequences);
  const turns = sequences.map((sequence, position) => turnsOf(sequence, position, name));
  return [...positionsBy(sequences, ({ groupId }) => groupId).values()].map(positions =>
    positions.flatMap(position => turns[position]),
  );
}

function turnsOf(sequence: AdvantageSequence, position: number, name: string): GraphTurn[] {
  const { states = [], finalState, success = false, validTurns } = sequence;
  const count = turnEnds(sequence).length;
  if (states.length !== count) {
    throw new RangeError(`${name} needs the state before each turn, got ${states.length} for ${count}`);
  }
  if (finalState === undefined) throw new RangeError(`${name} needs the state after the last turn`);
  const rewards = turnRewards(sequence);
  const episodeReturn = rewards.reduce((sum, reward) => sum + reward, 0);
  return states.map((from, turn) => {
    const isLast = turn === count - 1;
    return {
      sequence: position,
      turn,
      from,
      to: isLast ? (success ? GOAL : finalState) : states[turn + 1],
      reward: rewards[turn],
      valid: validTurns?.[turn] ?? true,
      isLast,
      success,
      turns: count,
      episodeReturn,
    };
  });
}

/**
 * Fewest turns from each state to the goal along the group's edges; where no path leads there, one more than the
 * largest distance.
 */
export function distancesToGoal(turns: readonly GraphTurn[]): {
  readonly of: (node: StateNode) => number;
  readonly reachable: ReadonlyMap<StateNode, number>;
} {
  const into = new Map<StateNode, string[]>();
  for (const { from, to } of turns) {
    const before = into.get(to);
    if (before) before.push(from);
    else into.set(to, [from]);
  }
  const reachable = new Map<StateNode, number>([[GOAL, 0]]);
  let farthest = 0;
  for (const [node, distance] of reachable) {
    farthest = Math.max(farthest, distance);
    for (const from of into.get(node) ?? []) if (!reachable.has(from)) reachable.set(from, distance + 1);
  }
  return { reachable, of: node => reachable.get(node) ?? farthest + 1 };
}

/** Mean of a value over all visits of each state. */
export function stateMeans(
  turns: readonly GraphTurn[],
  value: (turn: GraphTurn, index: number) => number,
): ReadonlyMap<StateNode, number> {
  const means = new Map<StateNode, number>();
  for (const [state, visits] of positionsBy(turns, ({ from }) => from)) {
    means.set(state, visits.reduce((sum, i) => sum + value(turns[i], i), 0) / visits.length);
  }
  return means;
}

/**
 * Values minus the mean of those from the same state, optionally divided by their standard deviation; 0 for a state met
 * once.
 */
export function comparedByState(
  turns: readonly GraphTurn[],
  values: ArrayLike<number>,
  byStd: boolean,
): Float64Array {
  const compared = new Float64Array(turns.length);
  for (const visits of positionsBy(turns, ({ from }) => from).values()) {
    if (visits.length > 1) standardize(compared, visits, values, byStd);
  }
  return compared;
}

/** Values minus their mean over all turns, optionally divided by their standard deviation; 0 for a single turn. */
export function comparedInGroup(values: ArrayLike<number>, byStd: boolean): Float64Array {
  const compared = new Float64Array(values.length);
  const all = Array.from({ length: values.length }, (_, i) => i);
  if (all.length > 1) standardize(compared, all, values, byStd);
  return compared;
}

function standardize(
  into: Float64Array,
  positions: readonly number[],
  values: ArrayLike<number>,
  byStd: boolean,
): void {
  const own = positions.map(i => values[i]);
  const center = own.reduce((sum, value) => sum + value, 0) / own.length;
  const scale = byStd ? unbiasedStd(own) + STD_FLOOR : 1;
  positions.forEach((i, k) => {
    into[i] = (own[k] - center) / scale;
  });
}

/** Shape of the groups' graphs, as means over the groups, under the logged names. */
export function graphMetrics(groups: readonly (readonly GraphTurn[])[]): Record<string, number> {
  const rows = groups.filter(turns => turns.length > 0).map(graphRow);
  if (rows.length === 0) return {};
  const names = [...new Set(rows.flatMap(row => Object.keys(row)))];
  return Object.fromEntries(
    names.map(name => {
      const values = rows.flatMap(row => (Number.isNaN(row[name]) ? [] : [row[name]]));
      return [`graph/${name}`, values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length)];
    }),
  );
}

function graphRow(turns: readonly GraphTurn[]): Record<string, number> {
  const { of, reachable } = distancesToGoal(turns);
  const visits = [...positionsBy(turns, ({ from }) => from).values()];
  const nodes = new Set<StateNode>(turns.flatMap(({ from, to }) => [from, to]));
  nodes.delete(GOAL);
  const edges = new Map<string, Set<StateNode>>();
  for (const { from, to } of turns) edges.set(from, (edges.get(from) ?? new Set()).add(to));
  const hasGoal = reachable.size > 1;
  const share = (of: readonly GraphTurn[], pick: (turn: GraphTurn) => boolean) =>
    of.length === 0 ? Number.NaN : of.filter(pick).length / of.length;
  const ends = turns.filter(({ isLast }) => isLast);
  return {
    nodes: nodes.size,
    failed_with_return: share(
      ends.filter(({ success }) => !success),
      ({ episodeReturn }) => episodeReturn > 0,
    ),
    edges: [...edges.values()].reduce((sum, ends) => sum + ends.size, 0),
    singleton_ratio: visits.filter(({ length }) => length === 1).length / turns.length,
    revisit_ratio: 1 - visits.length / turns.length,
    reachable_ratio: [...nodes].filter(node => reachable.has(node)).length / nodes.size,
    distance_start: hasGoal ? of(turns[0].from) : Number.NaN,
    progress_in_failed: share(
      hasGoal ? turns.filter(({ success }) => !success) : [],
      ({ from, to }) => of(to) < of(from),
    ),
    regress_in_success: share(
      turns.filter(({ success }) => success),
      ({ from, to }) => of(to) > of(from),
    ),
  };
}

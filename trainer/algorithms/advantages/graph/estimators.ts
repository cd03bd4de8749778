import { positionsBy, unbiasedStd } from '../../statistics.ts';
import type { AdvantageEstimator, AdvantageSequence, AdvantageSettings } from '../estimator.ts';
import { compared, groupOutcomes, requireWholeEpisodes, STD_FLOOR } from '../groups.ts';
import { atTurns, turnEnds, turnRewards } from '../turns.ts';

/** Step return of the last turn of a success (`graph_gpo`). */
const GOAL_RETURN = 10;
const INVALID_PENALTY = 0.1;
const GRAPH_GAMMA = 0.1;
const VALUE_GAMMA = 0.95;

const NEEDS = ['groups', 'turnEnds', 'states', 'finalStates'] as const;

/**
 * Credit by the distance to success in the graph that a group's episodes form: d(s) is the fewest edges from s to the goal, the step
 * return 10·γ^d(next), compared among the turns from the same state. A = w_e·A_episode + w_s·A_step, where each episode counts once
 * in A_episode. With `progress` the step return is 10·γ^(d(next) − d(s) + 1).
 *
 * Source: GraphGPO (arXiv 2605.26684), `recipe/GraphGPO/core_graph.py`, which counts an episode once per turn.
 */
export const graphGpo: AdvantageEstimator = {
  needs: NEEDS,
  comparesSuccess: true,
  estimate(sequences, settings) {
    const { gamma = GRAPH_GAMMA, progress } = settings.graph;
    return withEpisodes('graph_gpo', sequences, settings, turns => {
      const { of } = distancesToGoal(turns);
      const returns = turns.map(
        ({ from, to }) => GOAL_RETURN * gamma ** (progress ? of(to) - of(from) + 1 : of(to)),
      );
      return comparedByState(turns, returns, settings.stdNormalize);
    });
  },
};

/**
 * Credit by the values of the states that a turn connects. V(s) is the mean over all visits of γ^(turns left)·R; V⁺ of
 * a turn is V(next), the value of success after a success, and 0 after a failure. Part 1: V⁺ − 0.1 for a turn without a
 * valid action, compared among the turns from the same state. Part 2: V⁺ − V(s), compared over all turns of the group.
 * A = A_episode + w·(part 1 + part 2). Source: G²PO (arXiv 2606.22995), `g2po/core_g2po.py`, where success is worth 10
 * and an episode counts once per turn.
 */
export const g2po: AdvantageEstimator = {
  needs: NEEDS,
  comparesSuccess: true,
  estimate(sequences, settings) {
    const { gamma = VALUE_GAMMA, successValue } = settings.graph;
    return withEpisodes('g2po', sequences, settings, turns => {
      const values = stateMeans(turns, ({ turns: count, turn, episodeReturn }) => {
        return gamma ** (count - turn) * episodeReturn;
      });
      const best = successValue ?? Math.max(...turns.map(({ episodeReturn }) => episodeReturn));
      const after = turns.map(({ to, isLast }) => (isLast ? (to === GOAL ? best : 0) : values.get(to)!));
      const successors = after.map((value, i) => (turns[i].valid ? value : value - INVALID_PENALTY));
      const gains = after.map((value, i) => value - values.get(turns[i].from)!);
      const compared = comparedByState(turns, successors, settings.stdNormalize);
      return comparedInGroup(gains, settings.stdNormalize).map((gain, i) => gain + compared[i]);
    });
  },
};

/**
 * Generalized advantages over a grouped value: V(s) is the mean return-to-go over all visits of s in the group,
 * δ = r + γ·V(next) − V(s) with V(end) = 0, A = δ + γλ·A(next turn), standardized over the turns of the group. No episode part.
 *
 * Source: descriptions of GAGPO (arXiv 2605.13217); γ of the return and the group of the normalization are our reading.
 */
export const gagpo: AdvantageEstimator = {
  needs: NEEDS,
  estimate(sequences, settings) {
    const { gamma = VALUE_GAMMA, lambda } = settings.graph;
    const steps = sequences.map(({ turnEnds = [] }) => new Float64Array(turnEnds.length));
    const groups = groupTurns(sequences, 'gagpo');
    for (const turns of groups) {
      const returns = new Float64Array(turns.length);
      for (let i = turns.length - 1; i >= 0; i--) {
        returns[i] = turns[i].reward + (turns[i].isLast ? 0 : gamma * returns[i + 1]);
      }
      const values = stateMeans(turns, (_, i) => returns[i]);
      const raw = new Float64Array(turns.length);
      for (let i = turns.length - 1; i >= 0; i--) {
        const { reward, from, isLast } = turns[i];
        const after = isLast ? 0 : values.get(turns[i + 1].from)!;
        raw[i] = reward + gamma * after - values.get(from)! + (isLast ? 0 : gamma * lambda * raw[i + 1]);
      }
      const compared = comparedInGroup(raw, settings.stdNormalize);
      turns.forEach(({ sequence, turn }, i) => {
        steps[sequence][turn] = compared[i];
      });
    }
    const advantages = sequences.map((sequence, i) => atTurns(sequence, steps[i]));
    return { advantages, returns: advantages, metrics: graphMetrics(groups) };
  },
};

/** Weighted episode parts, each episode counted once, and step parts of the turns. */
function withEpisodes(
  name: string,
  sequences: readonly AdvantageSequence[],
  settings: AdvantageSettings,
  stepsOf: (turns: readonly GraphTurn[]) => Float64Array,
) {
  const { stepWeight, episodeWeight } = settings.graph;
  const outcomes = groupOutcomes(sequences);
  const values = sequences.map(({ turnEnds = [] }, i) => {
    const episode = compared(outcomes[i], settings.stdNormalize);
    return new Float64Array(turnEnds.length).fill(episodeWeight * episode);
  });
  const groups = groupTurns(sequences, name);
  for (const turns of groups) {
    const steps = stepsOf(turns);
    turns.forEach(({ sequence, turn }, i) => {
      values[sequence][turn] += stepWeight * steps[i];
    });
  }
  const advantages = sequences.map((sequence, i) => atTurns(sequence, values[i]));
  return { advantages, returns: advantages, metrics: graphMetrics(groups) };
}

/** The node that the last turn of a successful episode leads to. A symbol, since a state could have any text. */
const GOAL = Symbol('goal');
type StateNode = string | typeof GOAL;

/** A turn of a group's episode: an edge from the state before it to the state after it. */
interface GraphTurn {
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
function stateMeans(
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
function comparedByState(
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
function comparedInGroup(values: ArrayLike<number>, byStd: boolean): Float64Array {
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
function graphMetrics(groups: readonly (readonly GraphTurn[])[]): Record<string, number> {
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

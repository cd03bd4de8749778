import type { AdvantageEstimator, AdvantageSequence, AdvantageSettings } from '../estimator.ts';
import { compared, groupOutcomes } from '../groups.ts';
import { atTurns } from '../turns.ts';
import {
  comparedByState,
  comparedInGroup,
  distancesToGoal,
  GOAL,
  type GraphTurn,
  graphMetrics,
  groupTurns,
  stateMeans,
} from './state-graph.ts';

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

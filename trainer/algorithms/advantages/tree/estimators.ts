import { mean, positionsBy, unbiasedStd } from '../../statistics.ts';
import { type AdvantageEstimator, type AdvantageSequence, outcome, type VineTurns } from '../estimator.ts';
import { STD_FLOOR } from '../groups.ts';
import { atTurns } from '../turns.ts';
import { globalAndLocal, leaveOneOut, leavesBelow, shares, type TreeNode, treeOf } from './tree.ts';

/** Advantage of each node of a group's trees. */
type TreeCredit = (nodes: readonly TreeNode[]) => ReadonlyMap<TreeNode, number>;

/**
 * Each node of a tree against its siblings: A = Q(n) − mean Q of the siblings, Q the mean of the children's. No std, so the expected
 * gradient is exact with share weights. Without branches it is `rloo`.
 */
export const treeLoo = treeEstimator('tree_loo', leaveOneOut);

/**
 * Compares leaves with those of the whole group and with those of their tree: A = (R − mean_group)/(std_group + ε) + (R
 * − mean_tree)/(std_tree + ε); a turn shared by several leaves has their mean. Source: Tree-GRPO (arXiv 2509.21240),
 * `compute_grpo_outcome_advantage` by group and by tree.
 */
export const treeGrpo = treeEstimator('tree_grpo', nodes => {
  const leaves = nodes.filter(({ children }) => children.length === 0);
  const compared = (some: readonly TreeNode[]) => standardized(some.map(({ leafReturn }) => leafReturn!));
  const byLeaf = new Map<TreeNode, number>();
  for (const [i, value] of compared(leaves).entries()) byLeaf.set(leaves[i], value);
  for (const positions of positionsBy(leaves, rootOf).values()) {
    const own = positions.map(position => leaves[position]);
    for (const [i, value] of compared(own).entries()) byLeaf.set(own[i], byLeaf.get(own[i])! + value);
  }
  const below = leavesBelow(nodes);
  return new Map(nodes.map(node => [node, mean(below.get(node)!.map(leaf => byLeaf.get(leaf)!))]));
});

/**
 * Nodes against the start and against their parent, by the mean return of the leaves below: A = (V(n) − V(start) + V(n) −
 * V(parent))/√L(n). Source: TreeRL (arXiv 2506.11902); its code divides before it subtracts, the paper's formula does not.
 */
export const treeRl = treeEstimator('tree_rl', globalAndLocal);

/** An estimator over the leaves of each group, with share weights: L·w(n) for the tokens of node n. */
function treeEstimator(name: string, credit: TreeCredit): AdvantageEstimator {
  return {
    needs: ['groups', 'turnEnds', 'leaf'],
    ofTrees: true,
    estimate(sequences) {
      const advantages = new Array<Float64Array>(sequences.length);
      const weights = new Array<Float64Array>(sequences.length);
      let nodeCount = 0;
      let zeros = 0;
      for (const positions of positionsBy(sequences, ({ groupId }) => groupId).values()) {
        const leaves = new Map(
          positions.map(position => [sequences[position].leaf!, outcome(sequences[position])]),
        );
        const nodes = treeOf(leaves);
        const byId = new Map(nodes.map(node => [node.id, node]));
        const credits = credit(nodes);
        const parts = shares(nodes);
        for (const value of credits.values()) if (value === 0) zeros++;
        nodeCount += nodes.length;
        for (const position of positions) {
          const own = nodesOf(sequences[position], byId, name);
          advantages[position] = atTurns(
            sequences[position],
            own.map(node => credits.get(node)!),
          );
          weights[position] = atTurns(
            sequences[position],
            own.map(node => leaves.size * parts.get(node)!),
          );
        }
      }
      return {
        advantages,
        returns: advantages,
        weights,
        metrics: { 'branch/zero_advantage_ratio': nodeCount === 0 ? 0 : zeros / nodeCount },
      };
    },
  };
}

function nodesOf(
  { turnNodes = [], turnEnds = [] }: AdvantageSequence,
  byId: ReadonlyMap<string, TreeNode>,
  name: string,
): TreeNode[] {
  if (turnNodes.length !== turnEnds.length)
    throw new RangeError(
      `${name} needs the node of each turn, got ${turnNodes.length} for ${turnEnds.length}`,
    );
  return turnNodes.map(id => {
    const node = byId.get(id);
    if (!node) throw new RangeError(`${name}: no leaf of the group lies at or below node ${id}`);
    return node;
  });
}

function rootOf(node: TreeNode): TreeNode {
  let at = node;
  while (at.parent) at = at.parent;
  return at;
}

/** Values less their mean by their unbiased standard deviation; a single one has mean 0 and std 1. */
function standardized(values: readonly number[]): number[] {
  if (values.length === 1) return [values[0] / (1 + STD_FLOOR)];
  const center = mean(values);
  const scale = unbiasedStd(values) + STD_FLOOR;
  return values.map(value => (value - center) / scale);
}

/**
 * Advantages by the value of the history before and after each turn: A = r + V̂(after) − V̂(before), V̂ the mean return of other
 * continuations, 0 at the end. Turns between two values share what was earned there. Exact for any number of continuations, since
 * the episode's own future is in no V̂ before it.
 *
 * Source: VinePPO (arXiv 2410.01679), `_compute_step_advantages`.
 */
export const vine: AdvantageEstimator = {
  needs: ['vine'],
  estimate(sequences) {
    const episodes = new Map(sequences.map(({ episodeId, vine }, i) => [episodeId ?? i, vine!]));
    const credits = new Map([...episodes].map(([id, turns]) => [id, turnAdvantages(turns)]));
    const advantages = sequences.map((sequence, i) => {
      const own = credits.get(sequence.episodeId ?? i)!;
      return atTurns(
        sequence,
        sequence.vine!.trained.map(turn => own[turn]),
      );
    });
    return { advantages, returns: advantages, metrics: valueMetrics([...episodes.values()]) };
  },
};

/** @throws RangeError where the arrays differ in length, or the first turn has no value */
function turnAdvantages({ rewards, continuations }: VineTurns): number[] {
  if (continuations.length !== rewards.length)
    throw new RangeError(
      `vine needs the continuations of each turn, got ${continuations.length} for ${rewards.length}`,
    );
  if (continuations[0]?.length === 0)
    throw new RangeError('vine needs continuations from the start of an episode, got none');
  const advantages = new Array<number>(rewards.length);
  let after = 0;
  let earned = 0;
  let end = rewards.length;
  for (let turn = rewards.length - 1; turn >= 0; turn--) {
    earned += rewards[turn];
    if (continuations[turn].length === 0) continue;
    const before = mean(continuations[turn]);
    advantages.fill(earned + after - before, turn, end);
    [after, earned, end] = [before, 0, turn];
  }
  return advantages;
}

/** Values over all histories that have one, against the returns that followed in the episodes. */
function valueMetrics(episodes: readonly VineTurns[]): Record<string, number> {
  const values: number[] = [];
  const returns: number[] = [];
  let distinct = 0;
  for (const { rewards, continuations } of episodes) {
    let following = 0;
    for (let turn = rewards.length - 1; turn >= 0; turn--) {
      following += rewards[turn];
      const own = continuations[turn];
      if (own.length === 0) continue;
      values.push(mean(own));
      returns.push(following);
      distinct += new Set(own).size / own.length;
    }
  }
  if (values.length < 2) return {};
  const spread = unbiasedStd(returns) ** 2;
  const left = unbiasedStd(returns.map((value, i) => value - values[i])) ** 2;
  return {
    'vine/value_mean': mean(values),
    'vine/value_std': unbiasedStd(values),
    'vine/unique_ratio': distinct / values.length,
    'vine/explained': spread === 0 ? 0 : 1 - left / spread,
  };
}

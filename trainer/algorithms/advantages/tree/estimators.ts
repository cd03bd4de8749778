import { mean, positionsBy, unbiasedStd } from '../../statistics.ts';
import { type AdvantageEstimator, type AdvantageSequence, outcome } from '../estimator.ts';
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

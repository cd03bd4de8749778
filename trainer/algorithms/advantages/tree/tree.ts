/** A node of a group's trees: an edge of one or more turns, and what lies below. A node without children is a leaf. */
export interface TreeNode {
  readonly id: string;
  /** Undefined for a root. */
  readonly parent: TreeNode | undefined;
  readonly children: TreeNode[];
  /** Return of the episode that ends here; undefined for an inner node. */
  readonly leafReturn: number | undefined;
}

/** The trees of leaves given by their paths (`2.0.1`), parents before children. Lost leaves are simply missing. */
export function treeOf(leaves: ReadonlyMap<string, number>): TreeNode[] {
  const nodes = new Map<string, TreeNode>();
  const add = (id: string, leafReturn?: number): TreeNode => {
    const known = nodes.get(id);
    if (known) return known;
    const cut = id.lastIndexOf('.');
    const parent = cut < 0 ? undefined : add(id.slice(0, cut));
    const node: TreeNode = { id, parent, children: [], leafReturn };
    parent?.children.push(node);
    nodes.set(id, node);
    return node;
  };
  for (const [id, value] of leaves) add(id, value);
  return [...nodes.values()];
}

/**
 * Share weights: the start's children have equal shares that sum to 1, and each node splits its share among its
 * children.
 */
export function shares(nodes: readonly TreeNode[]): ReadonlyMap<TreeNode, number> {
  const roots = nodes.filter(({ parent }) => !parent).length;
  const found = new Map<TreeNode, number>();
  for (const node of nodes) {
    const { parent } = node;
    found.set(node, parent ? found.get(parent)! / parent.children.length : 1 / roots);
  }
  return found;
}

/** Share of each leaf of a group, by the paths of its leaves. */
export function leafShares(leaves: readonly string[]): number[] {
  const nodes = treeOf(new Map(leaves.map(leaf => [leaf, 0])));
  const weights = shares(nodes);
  const byId = new Map(nodes.map(node => [node.id, weights.get(node)!]));
  return leaves.map(leaf => byId.get(leaf)!);
}

/** Leaves at or below each node. */
export function leavesBelow(nodes: readonly TreeNode[]): ReadonlyMap<TreeNode, readonly TreeNode[]> {
  const found = new Map<TreeNode, TreeNode[]>(nodes.map(node => [node, []]));
  for (const leaf of nodes) {
    if (leaf.children.length > 0) continue;
    for (let at: TreeNode | undefined = leaf; at; at = at.parent) found.get(at)!.push(leaf);
  }
  return found;
}

const average = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Q of each node: the return of a leaf, else the mean of its children's. */
function nodeValues(nodes: readonly TreeNode[]): ReadonlyMap<TreeNode, number> {
  const found = new Map<TreeNode, number>();
  for (const node of [...nodes].reverse()) {
    const { children, leafReturn } = node;
    found.set(node, children.length === 0 ? leafReturn! : average(children.map(child => found.get(child)!)));
  }
  return found;
}

/**
 * A = Q(n) − b(n), b the mean Q of n's siblings; without siblings that of the nearest ancestor which has some; without any 0. What n's
 * own leaves came to has no part in b, so that the baseline adds no bias.
 */
export function leaveOneOut(nodes: readonly TreeNode[]): ReadonlyMap<TreeNode, number> {
  const values = nodeValues(nodes);
  const roots = nodes.filter(({ parent }) => !parent);
  const baseline = (node: TreeNode): number => {
    const siblings = (node.parent?.children ?? roots).filter(other => other !== node);
    if (siblings.length > 0) return average(siblings.map(sibling => values.get(sibling)!));
    return node.parent ? baseline(node.parent) : 0;
  };
  return new Map(nodes.map(node => [node, values.get(node)! - baseline(node)]));
}

/** A = (V(n) − V(start) + V(n) − V(parent))/√L(n), V the mean return of the leaves below, L their number. */
export function globalAndLocal(nodes: readonly TreeNode[]): ReadonlyMap<TreeNode, number> {
  const below = leavesBelow(nodes);
  const meanReturn = (leaves: readonly TreeNode[]) => average(leaves.map(({ leafReturn }) => leafReturn!));
  const start = meanReturn(nodes.filter(({ children }) => children.length === 0));
  return new Map(
    nodes.map(node => {
      const leaves = below.get(node)!;
      const value = meanReturn(leaves);
      const parent = node.parent ? meanReturn(below.get(node.parent)!) : start;
      return [node, (value - start + value - parent) / Math.sqrt(leaves.length)];
    }),
  );
}

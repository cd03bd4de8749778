import t from 'tap';
import { golden } from '../../../../test/golden.test-data.ts';
import type { AdvantageSequence } from '../estimator.ts';
import { estimateAdvantages } from '../registry.ts';
import { leafShares } from './tree.ts';

interface Node {
  readonly id: string;
  readonly parent: string | null;
  readonly return?: number;
}
interface Wanted {
  readonly id: string;
  readonly weight?: number;
  readonly advantage: number;
}

/** Names of nodes as paths, and a sequence per leaf with one token for each node on its way. */
function leavesOf(nodes: readonly Node[]): { paths: Map<string, string>; sequences: AdvantageSequence[] } {
  const paths = new Map<string, string>();
  const counts = new Map<string | null, number>();
  for (const { id, parent } of nodes) {
    const number = counts.get(parent) ?? 0;
    counts.set(parent, number + 1);
    paths.set(id, parent === null ? `${number}` : `${paths.get(parent)}.${number}`);
  }
  const byPath = new Map(nodes.map(node => [paths.get(node.id)!, node]));
  const sequences = nodes
    .filter(node => !counts.has(node.id) && node.return !== undefined)
    .map((leaf): AdvantageSequence => {
      const numbers = paths.get(leaf.id)!.split('.');
      const way = numbers.map((_, i) => numbers.slice(0, i + 1).join('.'));
      return {
        lossMask: way.map(() => 1),
        rewards: way.map((_, i) => (i === way.length - 1 ? leaf.return! : 0)),
        turnEnds: way.map((_, i) => i),
        turnNodes: way,
        leaf: way.at(-1)!,
        groupId: 0,
        episodeId: leaf.id,
      };
    });
  t.ok(byPath.size === nodes.length);
  return { paths, sequences };
}

const near = (a: number, b: number) => Math.abs(a - b) <= 1e-7 * Math.max(1, Math.abs(b));

for (const name of ['tree_loo', 'tree_rl'] as const) {
  t.test(`${name} gives the golden advantages and shares`, async t => {
    const { cases } = golden<{
      cases: { input: { nodes: Node[] }; output: Wanted[] | { paper: Wanted[] } }[];
    }>(`branching_${name}.json`);
    for (const { input, output } of cases) {
      const { paths, sequences } = leavesOf(input.nodes);
      const { advantages, weights } = estimateAdvantages(name, sequences);
      const wanted = new Map(
        (Array.isArray(output) ? output : output.paper).map(one => [paths.get(one.id)!, one]),
      );
      let compared = 0;
      sequences.forEach(({ turnNodes }, i) => {
        turnNodes!.forEach((node, turn) => {
          const { advantage, weight } = wanted.get(node)!;
          if (!near(advantages[i][turn], advantage))
            t.fail(`${node}: ${advantages[i][turn]} is not ${advantage}`);
          if (weight !== undefined && !near(weights![i][turn], sequences.length * weight))
            t.fail(`${node}: weight ${weights![i][turn]} is not ${sequences.length} · ${weight}`);
          compared++;
        });
      });
      t.ok(compared > 0);
    }
  });
}

t.test('tree_grpo gives the golden advantages of leaves, and shared turns the mean of theirs', async t => {
  const { cases } = golden<{
    cases: { input: { returns: number[]; groups: string[]; trees: string[] }; output: { sum: number[] } }[];
  }>('branching_tree_grpo.json');
  for (const { input, output } of cases) {
    const trees = [...new Set(input.trees)];
    const counts = new Map<string, number>();
    const sequences = input.returns.map((value, i): AdvantageSequence => {
      const tree = input.trees[i];
      const number = counts.get(tree) ?? 0;
      counts.set(tree, number + 1);
      const leaf = `${trees.indexOf(tree)}.${number}`;
      return {
        lossMask: [1],
        rewards: [value],
        turnEnds: [0],
        turnNodes: [leaf],
        leaf,
        groupId: input.groups[i],
        episodeId: `${i}`,
      };
    });
    const { advantages } = estimateAdvantages('tree_grpo', sequences);
    output.sum.forEach((wanted, i) => {
      if (!near(advantages[i][0], wanted)) t.fail(`leaf ${i}: ${advantages[i][0]} is not ${wanted}`);
    });
  }
  const leaf = (path: string, value: number): AdvantageSequence => ({
    lossMask: [1, 1],
    rewards: [0, value],
    turnEnds: [0, 1],
    turnNodes: [path.split('.')[0], path],
    leaf: path,
    groupId: 0,
    episodeId: path,
  });
  const { advantages } = estimateAdvantages('tree_grpo', [leaf('0.0', 1), leaf('0.1', 0), leaf('1.0', 0)]);
  t.ok(near(advantages[0][0], (advantages[0][1] + advantages[1][1]) / 2));
});

t.test(
  'a lost leaf leaves its share to its siblings, and a tree of equal leaves has no advantage',
  async t => {
    t.same(leafShares(['0.0', '0.1', '1']), [0.25, 0.25, 0.5]);
    t.same(leafShares(['0.1', '1']), [0.5, 0.5], 'without 0.0');
    t.same(leafShares(['2.0.1']), [1]);
    const { sequences } = leavesOf([
      { id: 'a', parent: null },
      { id: 'a1', parent: 'a', return: 1 },
      { id: 'a2', parent: 'a', return: 1 },
      { id: 'b', parent: null },
      { id: 'b1', parent: 'b', return: 1 },
      { id: 'b2', parent: 'b', return: 1 },
    ]);
    for (const name of ['tree_loo', 'tree_grpo', 'tree_rl']) {
      const { advantages, metrics } = estimateAdvantages(name, sequences);
      t.same(
        advantages.flatMap(row => [...row]),
        [0, 0, 0, 0, 0, 0, 0, 0],
        name,
      );
      t.equal(metrics!['branch/zero_advantage_ratio'], 1);
    }
  },
);

t.test('trees without a branch are rloo, and one root alone is plain REINFORCE', async t => {
  const roots = [3, 1, 0.5].map((value, i) => ({ id: `${i}`, parent: null, return: value }));
  const { sequences } = leavesOf(roots);
  const rloo = estimateAdvantages('rloo', sequences).advantages;
  t.same(estimateAdvantages('tree_loo', sequences).advantages, rloo);
  const { sequences: single } = leavesOf([roots[0]]);
  t.same([...estimateAdvantages('tree_loo', single).advantages[0]], [3]);
});

t.test('a sequence without nodes, and one with a node above no leaf, are refused by name', async t => {
  const one = { lossMask: [1], rewards: [1], turnEnds: [0], groupId: 0 };
  t.throws(() => estimateAdvantages('tree_loo', [one]), /tree_loo needs "leaf", which sequence 0 lacks/);
  t.throws(
    () => estimateAdvantages('tree_rl', [{ ...one, leaf: '0' }]),
    /tree_rl needs the node of each turn, got 0 for 1/,
  );
  t.throws(
    () => estimateAdvantages('tree_grpo', [{ ...one, leaf: '0', turnNodes: ['1'] }]),
    /tree_grpo: no leaf of the group lies at or below node 1/,
  );
});

/** The process of `branching_unbiased.json`: state, action, next state or end, reward, probability of the outcome of chance. */
interface Process {
  readonly logits: readonly (readonly [number, number])[];
  readonly a: number;
  readonly b: number;
  readonly r1: number;
  readonly r2: number;
}
interface Outcome {
  readonly probability: number;
  readonly state: number;
  readonly action: number;
  readonly next: number | undefined;
  readonly reward: number;
}
interface Chain {
  readonly probability: number;
  readonly turns: readonly Outcome[];
}

const policyOf = ({ logits }: Process, state: number) => {
  const [left, right] = logits[state].map(Math.exp);
  return [left / (left + right), right / (left + right)];
};

function outcomes(process: Process, state: number): Outcome[] {
  const { a, b, r1, r2 } = process;
  const [left, right] = policyOf(process, state);
  const rows: readonly (readonly [number, number, number | undefined, number])[] = [
    ...(state === 0
      ? ([
          [left * a, 0, 1, 0],
          [left * (1 - a), 0, 2, 0],
          [right, 1, 2, 0],
        ] as const)
      : []),
    ...(state === 1
      ? ([
          [left, 0, undefined, r1],
          [right, 1, 2, 0],
        ] as const)
      : []),
    ...(state === 2
      ? ([
          [left, 0, undefined, r2],
          [right * b, 1, undefined, 1],
          [right * (1 - b), 1, undefined, 0],
        ] as const)
      : []),
  ];
  return rows.map(([probability, action, next, reward]) => ({ probability, state, action, next, reward }));
}

/** Every way to continue from a state to the end. */
function chainsFrom(process: Process, state: number): Chain[] {
  return outcomes(process, state).flatMap(first =>
    first.next === undefined
      ? [{ probability: first.probability, turns: [first] }]
      : chainsFrom(process, first.next).map(rest => ({
          probability: first.probability * rest.probability,
          turns: [first, ...rest.turns],
        })),
  );
}

/** A tree as its leaves: chains with the node of each turn. */
interface PlayedTree {
  readonly probability: number;
  readonly leaves: readonly { readonly turns: readonly Outcome[]; readonly nodes: readonly string[] }[];
}

/** Every tree that branches after its first turn into two, and those of one chain where `isBranched` says so. */
function trees(process: Process, root: number, isBranched: (first: Outcome) => boolean): PlayedTree[] {
  return outcomes(process, 0).flatMap(first => {
    const ways = chainsFrom(process, first.next!);
    if (!isBranched(first)) {
      return ways.map(({ probability, turns }) => ({
        probability: first.probability * probability,
        leaves: [{ turns: [first, ...turns], nodes: [first, ...turns].map(() => `${root}`) }],
      }));
    }
    return ways.flatMap(one =>
      ways.map(two => ({
        probability: first.probability * one.probability * two.probability,
        leaves: [one, two].map(({ turns }, child) => ({
          turns: [first, ...turns],
          nodes: [`${root}`, ...turns.map(() => `${root}.${child}`)],
        })),
      })),
    );
  });
}

/** Expectation of Σ weight · advantage · score over the turns, each shared turn once, divided by the leaves. */
function expectedGradient(
  name: string,
  process: Process,
  isBranched: (first: Outcome) => boolean,
): number[][] {
  const gradient = process.logits.map(() => [0, 0]);
  const pairs = trees(process, 0, isBranched).flatMap(one =>
    trees(process, 1, isBranched).map(two => ({
      probability: one.probability * two.probability,
      leaves: [...one.leaves, ...two.leaves],
    })),
  );
  for (const { probability, leaves } of pairs) {
    const seen = new Set<string>();
    const owned = leaves.map(({ nodes }) =>
      nodes.map((node, turn) => !seen.has(`${node} ${turn}`) && seen.add(`${node} ${turn}`) !== undefined),
    );
    const sequences = leaves.map(({ turns, nodes }, i): AdvantageSequence => {
      const kept = owned[i].flatMap((own, turn) => (own ? [turn] : []));
      return {
        lossMask: owned[i].map(Number),
        rewards: turns.map((_, turn) =>
          turn === kept.at(-1) ? turns.reduce((sum, { reward }) => sum + reward, 0) : 0,
        ),
        turnEnds: kept,
        turnNodes: kept.map(turn => nodes[turn]),
        leaf: nodes.at(-1)!,
        groupId: 0,
        episodeId: nodes.at(-1)!,
      };
    });
    const { advantages, weights } = estimateAdvantages(name, sequences);
    leaves.forEach(({ turns }, i) => {
      turns.forEach(({ state, action }, turn) => {
        if (!owned[i][turn]) return;
        const part = (probability * weights![i][turn] * advantages[i][turn]) / leaves.length;
        policyOf(process, state).forEach((p, other) => {
          gradient[state][other] += part * ((other === action ? 1 : 0) - p);
        });
      });
    });
  }
  return gradient;
}

t.test(
  'tree_loo has the exact gradient, also where branches depend on the past; the others do not',
  async t => {
    const { cases } = golden<{ cases: { input: Process; output: { gradient: number[][] } }[] }>(
      'branching_unbiased.json',
    );
    const off = (found: number[][], wanted: number[][]) =>
      Math.max(...found.flatMap((row, i) => row.map((value, k) => Math.abs(value - wanted[i][k]))));
    for (const { input, output } of cases.slice(0, 4)) {
      for (const isBranched of [() => true, ({ action }: Outcome) => action === 0, () => false])
        t.ok(off(expectedGradient('tree_loo', input, isBranched), output.gradient) < 1e-9);
      for (const name of ['tree_grpo', 'tree_rl'])
        t.ok(
          off(
            expectedGradient(name, input, () => true),
            output.gradient,
          ) > 1e-3,
          `${name} is biased`,
        );
    }
  },
);

import t from 'tap';
import { golden } from '../../../../test/golden.test-data.ts';
import type { AdvantageSequence } from '../estimator.ts';
import { estimateAdvantages } from '../registry.ts';

const sequenceOf = (
  rewards: readonly number[],
  continuations: readonly (readonly number[])[],
): AdvantageSequence => ({
  lossMask: rewards.map(() => 1),
  rewards,
  turnEnds: rewards.map((_, k) => k),
  vine: { rewards, continuations, trained: rewards.map((_, k) => k) },
  groupId: 0,
});

t.test('vine gives the golden advantages of VinePPO', async t => {
  const { cases } = golden<{
    cases: {
      input: { rewards: number[]; clone_returns: number[][] };
      output: { values: number[]; advantages: number[] };
    }[];
  }>('branching_vine.json');
  t.ok(cases.length > 2);
  for (const { input, output } of cases) {
    // Upstream gives turns without clones at the end the rewards that follow as their value.
    const returns = input.clone_returns.map((own, k) => (own.length > 0 ? own : [output.values[k]]));
    const { advantages } = estimateAdvantages('vine', [sequenceOf(input.rewards, returns)]);
    output.advantages.forEach((wanted, k) => {
      if (Math.abs(advantages[0][k] - wanted) > 1e-7)
        t.fail(`turn ${k}: ${advantages[0][k]} is not ${wanted}`);
    });
  }
});

t.test(
  'turns between two values share what was earned there, and values are compared with what followed',
  async t => {
    const { advantages, metrics } = estimateAdvantages('vine', [
      sequenceOf([1, 2, 4, 8], [[10, 12], [], [5, 5], []]),
    ]);
    t.same([...advantages[0]], [-3, -3, 7, 7]);
    t.equal(metrics!['vine/value_mean'], 8);
    t.equal(metrics!['vine/unique_ratio'], 0.75);
    // Returns 15 and 12, of variance 4.5; less the values 11 and 5 they are 4 and 7, of variance 4.5.
    t.equal(metrics!['vine/explained'], 0);
  },
);

t.test('a sequence of some turns of an episode gets theirs, and what has no value is refused', async t => {
  const whole = sequenceOf([0, 1, 0], [[0.5], [0.25], [0]]);
  const { advantages } = estimateAdvantages('vine', [
    { ...whole, episodeId: 'a', lossMask: [0, 1, 1], turnEnds: [2], vine: { ...whole.vine!, trained: [1] } },
  ]);
  t.same([...advantages[0]], [0, 0.75, 0.75]);
  t.throws(
    () => estimateAdvantages('vine', [{ ...whole, vine: undefined }]),
    /vine needs "vine", which sequence 0 lacks/,
  );
  t.throws(
    () => estimateAdvantages('vine', [sequenceOf([1, 1], [[], [1]])]),
    /vine needs continuations from the start/,
  );
  t.throws(
    () => estimateAdvantages('vine', [sequenceOf([1, 1], [[1]])]),
    /the continuations of each turn, got 1 for 2/,
  );
});

interface Process {
  readonly logits: readonly (readonly [number, number])[];
  readonly a: number;
  readonly b: number;
  readonly r1: number;
  readonly r2: number;
}
interface Chain {
  readonly probability: number;
  readonly turns: readonly { readonly state: number; readonly action: number; readonly reward: number }[];
}

const policyOf = ({ logits }: Process, state: number) => {
  const [left, right] = logits[state].map(Math.exp);
  return [left / (left + right), right / (left + right)];
};

/** Every way to continue from a state of the process to the end, as `branching_unbiased.json` describes it. */
function chainsFrom(process: Process, state: number): Chain[] {
  const { a, b, r1, r2 } = process;
  const [left, right] = policyOf(process, state);
  const rows: readonly (readonly [number, number, number | undefined, number])[][] = [
    [
      [left * a, 0, 1, 0],
      [left * (1 - a), 0, 2, 0],
      [right, 1, 2, 0],
    ],
    [
      [left, 0, undefined, r1],
      [right, 1, 2, 0],
    ],
    [
      [left, 0, undefined, r2],
      [right * b, 1, undefined, 1],
      [right * (1 - b), 1, undefined, 0],
    ],
  ];
  return rows[state].flatMap(([probability, action, next, reward]) => {
    const turn = { state, action, reward };
    if (next === undefined) return [{ probability, turns: [turn] }];
    return chainsFrom(process, next).map(rest => ({
      probability: probability * rest.probability,
      turns: [turn, ...rest.turns],
    }));
  });
}

/** Expected Σ advantage · score over every chain and every outcome of one continuation from each of its histories. */
function expectedGradient(process: Process, isOwnCounted: boolean): number[][] {
  const gradient = process.logits.map(() => [0, 0]);
  for (const { probability, turns } of chainsFrom(process, 0)) {
    let ways: { probability: number; returns: number[][] }[] = [{ probability, returns: [] }];
    turns.forEach(({ state }, k) => {
      const own = turns.slice(k).reduce((sum, { reward }) => sum + reward, 0);
      ways = ways.flatMap(way =>
        chainsFrom(process, state).map(other => {
          const value = other.turns.reduce((sum, { reward }) => sum + reward, 0);
          return {
            probability: way.probability * other.probability,
            returns: [...way.returns, isOwnCounted ? [value, own] : [value]],
          };
        }),
      );
    });
    for (const way of ways) {
      const rewards = turns.map(({ reward }) => reward);
      const { advantages } = estimateAdvantages('vine', [sequenceOf(rewards, way.returns)]);
      turns.forEach(({ state, action }, k) => {
        policyOf(process, state).forEach((p, other) => {
          gradient[state][other] += way.probability * advantages[0][k] * ((other === action ? 1 : 0) - p);
        });
      });
    }
  }
  return gradient;
}

t.test(
  'vine has the exact gradient with one continuation; with the own future in the value it has not',
  async t => {
    const { cases } = golden<{ cases: { input: Process; output: { gradient: number[][] } }[] }>(
      'branching_unbiased.json',
    );
    const off = (found: number[][], wanted: number[][]) =>
      Math.max(...found.flatMap((row, i) => row.map((value, k) => Math.abs(value - wanted[i][k]))));
    for (const { input, output } of cases.slice(0, 4)) {
      t.ok(off(expectedGradient(input, false), output.gradient) < 1e-9);
      t.ok(off(expectedGradient(input, true), output.gradient) > 1e-3);
    }
  },
);

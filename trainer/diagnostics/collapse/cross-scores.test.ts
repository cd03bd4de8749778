import t from 'tap';
import type { ContinuationRequest } from '../../policy/policy.ts';
import { countScoredTokens, crossTable, planCrossScores } from './collapse.ts';
import type { ReasoningSample } from './collapse-metrics.ts';

const sample = (group: number, prompt: number[], reasoning: number[]): ReasoningSample => ({
  group,
  prompt,
  reasoning,
});
const firsts = [sample(4, [1, 2], [10, 11]), sample(4, [1, 2], [13]), sample(2, [7, 8, 9], [15, 16, 17])];

/** A number for each prompt and reasoning. */
const score = (prompt: ArrayLike<number>, reasoning: ArrayLike<number>) => -(100 * prompt[0] + reasoning[0]);
const scored = (requests: readonly ContinuationRequest[]) =>
  requests.map(({ prompt, continuations }) => continuations.map(ids => score(prompt, ids)));

t.test('every reasoning is scored behind every prompt; columns have the order of groups', async t => {
  const table = crossTable(firsts);
  t.same(table.matchedColumn, [1, 1, 0]);
  t.equal(table.mismatches, 0);
  const { requests, collect } = planCrossScores([table]);
  t.equal(requests.length, 2);
  const [scores] = collect(scored(requests));
  t.same(scores.perSequence, [
    [-710, -110],
    [-713, -113],
    [-715, -115],
  ]);
  t.same(scores.perToken[0], [-355, -55]);
  t.same(scores.prompts, [
    [7, 8, 9],
    [1, 2],
  ]);
  t.same(countScoredTokens([table]), [5 + 2 * 6]);
});

t.test("a member with a prompt other than its group's gets a column and is counted", async t => {
  const table = crossTable([...firsts, sample(4, [1, 3], [20]), sample(4, [1, 3], [21])]);
  t.same(table.columns, [
    [7, 8, 9],
    [1, 2],
    [1, 3],
  ]);
  t.same(table.matchedColumn, [1, 1, 0, 2, 2]);
  t.equal(table.mismatches, 2);
});

t.test(
  'equal prompts and equal reasonings go through the model once, and fill every row and column',
  async t => {
    const repeated = [
      sample(0, [1], [5, 6]),
      sample(1, [1], [5, 6]),
      sample(2, [2], [7]),
      sample(3, [1], [7]),
    ];
    const tables = [crossTable(repeated.slice(0, 3)), crossTable(repeated)];
    const { requests, collect } = planCrossScores(tables);
    t.same(
      requests.map(({ prompt, continuations }) => [Array.from(prompt), continuations.length]),
      [
        [[1], 2],
        [[2], 2],
      ],
    );
    t.same(countScoredTokens(tables), [2 + 2 * 3, 0], 'the second table has nothing new');
    const [, scores] = collect(scored(requests));
    t.same(
      scores.perSequence,
      repeated.map(({ reasoning }) => repeated.map(({ prompt }) => score(prompt, reasoning))),
    );
  },
);

t.test('a shared prompt saves what the specification says', async t => {
  const ids = (length: number, salt: number) => Array.from({ length }, (_, i) => 1000 * salt + i);
  const samples = Array.from({ length: 64 }, (_, i) => sample(i, ids(400, i), ids(100, 100 + i)));
  const [tokens] = countScoredTokens([crossTable(samples)]);
  t.equal(tokens, 435_200);
  t.ok((64 * 64 * 500) / tokens > 4.7);
});

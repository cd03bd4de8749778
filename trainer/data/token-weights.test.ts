import { readFileSync } from 'node:fs';
import t from 'tap';
import { type ConversationNode, echoWeights, observationWeights } from './token-weights.ts';

interface GoldenNode {
  readonly role: string;
  readonly sampled: boolean;
  readonly tokens: number;
  readonly is_content: readonly boolean[];
  readonly ce_weights: readonly number[] | null;
}
const { episodes } = JSON.parse(
  readFileSync(new URL('../../test/golden/algorithms_2026.json', import.meta.url), 'utf8'),
) as { episodes: { function: string; roles: Record<string, number>; nodes: GoldenNode[] }[] };

for (const { nodes, roles } of episodes.filter(({ function: name }) => name === 'echo')) {
  t.test(`golden ECHO with ${JSON.stringify(roles)}`, async t => {
    const own = nodes.map(
      ({ is_content, ...node }): ConversationNode => ({ ...node, isContent: is_content }),
    );
    echoWeights(own, roles).forEach((weights, i) => {
      const wanted = nodes[i].ce_weights ?? new Array<number>(nodes[i].tokens).fill(0);
      t.same(weights, Float32Array.from(wanted), `node ${i}, ${nodes[i].role}`);
    });
  });
}

t.test('only what the environment wrote after the first response counts', async t => {
  const lossMask = Uint8Array.of(0, 0, 1, 1, 0, 0, 1, 0);
  const half = (...weights: number[]) => Float32Array.from(weights);
  t.same(observationWeights(lossMask, 0.5), half(0, 0, 0, 0, 0.5, 0.5, 0, 0.5));
  t.same(observationWeights(lossMask, 0.5, 5), half(0, 0, 0, 0, 0, 0.5, 0, 0.5));
  t.same(observationWeights(new Uint8Array(3), 0.5), half(0, 0, 0), 'without a response');
  t.same(observationWeights(new Uint8Array(0), 0.5), half());
});

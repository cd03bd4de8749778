import t from 'tap';
import { countLossTokens } from '../../algorithms/losses/aggregation.ts';
import { lossInputs, lossScalars, lossStructure } from '../../algorithms/losses/inputs.ts';
import { DEFAULT_LOSS_SETTINGS } from '../../algorithms/losses/settings.ts';
import {
  buildUpdateLoss,
  declareLossInputs,
  LOSS_COMPONENTS,
  lossInputName,
} from '../../algorithms/losses/update-loss.ts';
import { gradients } from '../../tensor/graph/gradients.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import { interpret } from '../../tensor/graph/interpreter.test-data.ts';
import { GradientGeometry } from './gradient-decomposition.ts';

const settings = {
  ...DEFAULT_LOSS_SETTINGS,
  aggregation: 'token_mean' as const,
  entropyCoefficient: 0.001,
};
const LOGITS = [Math.log(3), 0];

/** Gradients with respect to the two logits of a bandit, each action one token; and the components of the loss. */
function banditGradients(actions: readonly number[], advantages: readonly number[]) {
  const sequences = actions.map((action, i) => ({
    tokenIds: Int32Array.of(action),
    lossMask: Uint8Array.of(1),
    logProbs: Float32Array.of(Math.log(action === 0 ? 0.75 : 0.25)),
    advantages: Float32Array.of(advantages[i]),
  }));
  const counts = countLossTokens(sequences);
  const structure = lossStructure(settings, { value: false, entropy: true });
  const g = new GraphBuilder();
  const logits = g.parameter('logits', [2]);
  const distribution = g.logSoftmax(g.broadcastTo(g.reshape(logits, [1, 2]), [actions.length, 2]));
  const outputs = {
    logProbs: g.takeLast(distribution, g.constant([...actions], [actions.length], 'int32')),
    entropies: g.neg(g.sum(g.mul(g.exp(distribution), distribution), [-1])),
  };
  const inputs = declareLossInputs(g, structure, [actions.length]);
  const { components } = buildUpdateLoss(g, outputs, inputs, structure);
  for (const [name, term] of components) {
    g.output(`${name}.gradient`, gradients(g, term, [logits])[0]);
    g.output(`${name}.loss`, term);
  }
  const rows = sequences.map(sequence => lossInputs(sequence, settings, structure, counts));
  const scalars = lossScalars(settings, counts);
  const feeds: Record<string, number[]> = { logits: LOGITS };
  for (const name of inputs.tokens.keys()) feeds[lossInputName(name)] = rows.map(row => row[name]![0]);
  for (const name of inputs.scalars.keys()) feeds[lossInputName(name)] = [scalars[name]];
  const found = interpret(g.build(), feeds);
  return {
    counts,
    gradients: LOSS_COMPONENTS.filter(name => components.has(name)).map(component => ({
      component,
      vector: Array.from(found[`${component}.gradient`]),
      loss: found[`${component}.loss`][0],
    })),
  };
}

t.test('bandit by hand: a group without spread adds regularizer alone', async t => {
  const measured = [banditGradients([0, 1], [0, 0]), banditGradients([0, 1], [0.5, -0.5])];
  const flat = measured.flatMap(({ gradients }, batch) =>
    gradients.map(gradient => ({ ...gradient, batch })),
  );
  t.same(
    flat.map(({ component }) => component),
    ['task', 'entropy', 'task', 'entropy'],
  );
  const products = Float64Array.from(
    flat.flatMap(a => flat.map(b => a.vector.reduce((sum, x, i) => sum + x * b.vector[i], 0))),
  );
  const cells = measured.map(({ counts }, bucket) => ({ bucket, counts, single: true }));
  const geometry = new GradientGeometry(cells, { gradients: flat, products }, 'token_mean');
  const sizes = { sequences: 2, tokens: 2 };
  const [low, high, all] = [0, 1, undefined].map(bucket => geometry.metrics(bucket, sizes));
  const near = (found: number, wanted: number, what: string) =>
    t.ok(Math.abs(found - wanted) <= 2e-6 * Math.max(1, Math.abs(wanted)), `${what}: ${found} is ${wanted}`);
  near(low.task, 0, 'task of the group without spread');
  near(high.task, 0.353553, 'task of the other');
  near(all.task, 0.176777, 'task of all');
  near(high['per_sample/task'], 0.353553 / 2, 'per sample');
  for (const bucket of [low, high, all]) near(bucket.entropy, 0.000291314, 'entropy');
  near(low.task_to_reg, 0, 'task to regularizer');
  near(high.task_to_reg, 1213.65, 'task to regularizer');
  near(low['share/task'], 0, 'share');
  near(high['share/task'], 1, 'share');
  near(low['share/entropy'], 0.5, 'share');
  near(high['cosine/task'], 1, 'cosine');
  t.notOk('cosine/task' in low, 'nothing has no direction');
  near(high['loss/entropy'], -0.001 * 0.562335, 'loss');
  near(all['loss/total'], all['loss/policy'] + all['loss/entropy'], 'loss');
  t.equal(all['loss/kl'], 0);
  t.equal(all.kl, 0);
  near(high.task * (2 / 32), 0.022097, "RAGEN's number for a mini-batch of 32");
  near(all.snr, 0.5, 'signal to noise');
  t.notOk('snr' in low);
});

t.test('shares sum to 1, and a bucket that pulls the other way has a negative one', async t => {
  const counts = (tokens: number) => ({
    tokens,
    sequences: 1,
    entropyTokens: tokens,
    entropySequences: 1,
  });
  const vectors = [
    [1, 2],
    [-2, 1],
    [4, 4],
  ];
  const products = Float64Array.from(vectors.flatMap(a => vectors.map(b => a[0] * b[0] + a[1] * b[1])));
  const cells = [3, 1, 4].map((tokens, bucket) => ({ bucket, counts: counts(tokens), single: false }));
  const gradients = vectors.map((_, batch) => ({ batch, component: 'task' as const, loss: batch }));
  for (const [aggregation, weights] of [
    ['token_mean', [3 / 8, 1 / 8, 4 / 8]],
    ['seq_mean_token_mean', [1 / 3, 1 / 3, 1 / 3]],
  ] as const) {
    const geometry = new GradientGeometry(cells, { gradients, products }, aggregation);
    const buckets = [0, 1, 2].map(bucket => geometry.metrics(bucket, { sequences: 1, tokens: 1 }));
    t.ok(Math.abs(buckets.reduce((sum, bucket) => sum + bucket['share/task'], 0) - 1) < 1e-12);
    const all = [0, 1].map(i => vectors.reduce((sum, vector, b) => sum + weights[b] * vector[i], 0));
    const found = geometry.metrics(undefined, { sequences: 3, tokens: 8 });
    t.ok(Math.abs(found.task - Math.hypot(...all)) < 1e-12, aggregation);
    t.ok(Math.abs(found['loss/policy'] - (weights[1] + 2 * weights[2])) < 1e-12);
    t.ok(buckets[1]['share/task'] < 0 || buckets[1]['cosine/task'] > 0);
    t.notOk('snr' in found, 'no group was measured alone');
  }
});

import { readFileSync } from 'node:fs';
import t from 'tap';
import { gradients } from '../../tensor/graph/gradients.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import { interpret } from '../../tensor/graph/interpreter.test-data.ts';
import type { TrainingSequence } from '../training-sequence.ts';
import { countLossTokens, predictedTokens } from './aggregation.ts';
import { lossInputs, lossScalars, lossStructure } from './inputs.ts';
import { finishMetrics } from './metric-sums.ts';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from './settings.ts';
import { buildUpdateLoss, declareLossInputs, lossInputName } from './update-loss.ts';

type Matrix = number[][];
const golden = JSON.parse(
  readFileSync(new URL('../../../test/golden/algorithms_2026.json', import.meta.url), 'utf8'),
);
const { mild } = golden.batches;
const caseOf = (name: string) =>
  golden.policy_losses.find((one: { function: string }) => one.function === name);

/** The loss of a step, its metrics and its derivative, from sequences as the update gets them. */
function run(sequences: readonly TrainingSequence[], logProbs: Matrix, change: Partial<LossSettings>) {
  const settings: LossSettings = { ...DEFAULT_LOSS_SETTINGS, entropyCoefficient: 0, ...change };
  const crossEntropy = sequences.some(sequence => sequence.crossEntropyWeights !== undefined);
  const structure = lossStructure(settings, { value: false, entropy: false, crossEntropy });
  const shape = [logProbs.length, logProbs[0].length];
  const g = new GraphBuilder();
  const input = g.input('logProbs', 'float32', shape);
  const inputs = declareLossInputs(g, structure, shape);
  const { loss, metrics } = buildUpdateLoss(g, { logProbs: input }, inputs, structure);
  g.output('loss', loss);
  for (const [name, metric] of metrics) g.output(name, metric);
  g.output('gradient', gradients(g, loss, [input])[0]);
  const counts = countLossTokens(sequences);
  const rows = sequences.map(sequence => lossInputs(sequence, settings, structure, counts));
  const feeds: Record<string, ArrayLike<number>> = { logProbs: logProbs.flat() };
  for (const name of inputs.tokens.keys()) {
    feeds[lossInputName(name)] = rows.flatMap(row => Array.from(row[name]!));
  }
  const scalars = lossScalars(settings, counts);
  for (const name of inputs.scalars.keys()) feeds[lossInputName(name)] = [scalars[name]];
  const found = interpret(g.build(), feeds);
  return {
    loss: found.loss[0],
    gradient: Array.from(found.gradient),
    metrics: finishMetrics(Object.fromEntries([...metrics.keys()].map(name => [name, found[name][0]]))),
    counts,
  };
}

const near = (a: number, b: number) => Math.abs(a - b) < 1e-6 * Math.max(1, Math.abs(b));

function sequencesOf(weights: { rl: Matrix; ce: Matrix; kl: Matrix }, reference: Matrix): TrainingSequence[] {
  return mild.log_prob.map((row: number[], i: number) => ({
    tokenIds: new Int32Array(row.length),
    lossMask: Uint8Array.from(row, (_, k) => (weights.rl[i][k] || weights.kl[i][k] ? 1 : 0)),
    logProbs: Float32Array.from(mild.rollout_log_prob[i]),
    advantages: Float32Array.from(mild.advantages[i]),
    referenceLogProbs: Float32Array.from(reference[i]),
    policyGradientWeights: Float32Array.from(weights.rl[i]),
    crossEntropyWeights: Float32Array.from(weights.ce[i]),
    klWeights: Float32Array.from(weights.kl[i]),
  }));
}

t.test(
  'golden compute_loss: policy gradient, cross-entropy and reverse KL, each over its own tokens',
  async t => {
    const data = caseOf('compute_loss');
    const sequences = sequencesOf(
      { rl: data.rl_weights, ce: data.ce_weights, kl: data.ref_kl_weights },
      data.ref_log_prob,
    );
    const { gradient, counts, metrics } = run(sequences, mild.log_prob, {
      policy: 'dppo',
      kl: { ...DEFAULT_LOSS_SETTINGS.kl, estimator: 'reverse', coefficient: 1 },
    });
    const { rl, ce, ref_kl } = data.counts;
    t.same(counts.streams, {
      policy: { tokens: rl, sequences: 3 },
      crossEntropy: { tokens: ce, sequences: 4 },
      kl: { tokens: ref_kl, sequences: 1 },
    });
    const wanted = (data.gradient as Matrix).flat();
    t.ok(
      gradient.every((x, i) => near(x, wanted[i])),
      'gradient',
    );
    t.equal(metrics['actor/ce_tokens'], 9);
  },
);

t.test('golden ce_loss_fn: weights scale a token, and do not change the count', async t => {
  const data = caseOf('ce_loss_fn');
  const sequences = (mild.mask as Matrix).map((mask, i) => ({
    tokenIds: new Int32Array(mask.length),
    lossMask: Uint8Array.from(mask),
    logProbs: new Float32Array(mask.length),
    advantages: new Float32Array(mask.length),
    crossEntropyWeights: Float32Array.from(mask, (on, k) => on * data.weights[i][k]),
  }));
  const { loss, gradient } = run(sequences, mild.log_prob, { policy: 'cross_entropy' });
  const sum = (data.terms as Matrix).flat().reduce((a, b) => a + b, 0);
  t.ok(near(loss * data.token_count, sum));
  const wanted = (data.gradient_of_sum as Matrix).flat();
  t.ok(gradient.every((x, i) => near(x * data.token_count, wanted[i])));
});

t.test('observed tokens are predicted for the cross-entropy and reach nothing else', async t => {
  const base: TrainingSequence = {
    tokenIds: new Int32Array(5),
    lossMask: Uint8Array.of(0, 1, 0, 0, 1),
    logProbs: Float32Array.of(0, -1, 0, 0, -1),
    advantages: Float32Array.of(9, 1, 9, 9, -1),
  };
  const logProbs = [[Number.NaN, -1.1, -2, -4, -0.9]];
  const plain = run([base], logProbs, {});
  const echo = { ...base, crossEntropyWeights: Float32Array.of(0, 0, 0.1, 0.1, 0) };
  const mixed = run([echo], logProbs, {});
  t.same(predictedTokens(echo), Uint8Array.of(0, 1, 1, 1, 1));
  t.ok(near(mixed.loss - plain.loss, 0.1 * 3), 'α times the mean over the observed tokens');
  t.ok(near(mixed.metrics['actor/ce_nll'], 3));
  t.equal(mixed.metrics['actor/pg_loss'], plain.metrics['actor/pg_loss']);
  t.same(
    mixed.gradient.map(x => Number(x.toFixed(6))),
    plain.gradient.map((x, k) => Number((x - (k === 2 || k === 3 ? 0.05 : 0)).toFixed(6))),
  );
});

t.test('a step without a weight in a stream has no loss there', async t => {
  const base: TrainingSequence = {
    tokenIds: new Int32Array(3),
    lossMask: Uint8Array.of(0, 1, 1),
    logProbs: new Float32Array(3),
    advantages: Float32Array.of(0, 1, 1),
    policyGradientWeights: new Float32Array(3),
    crossEntropyWeights: new Float32Array(3),
  };
  const { loss, gradient } = run([base], [[0, -1, -1]], {});
  t.equal(loss, 0);
  t.ok(gradient.every(x => x === 0));
});

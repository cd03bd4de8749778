import t from 'tap';
import type { TrainingSequence } from '../../data/sequences/training-sequence.ts';
import { gradients } from '../../tensor/graph/gradients.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import { interpret } from '../../tensor/graph/reference/interpreter.ts';
import { countLossTokens } from './aggregation.ts';
import { checkLossSettings } from './check-settings.ts';
import { lossInputs, lossScalars, lossStructure } from './inputs.ts';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from './settings.ts';
import { buildUpdateLoss, declareLossInputs, lossInputName } from './update-loss.ts';

const LENGTH = 5;
const SETTINGS: LossSettings = {
  ...DEFAULT_LOSS_SETTINGS,
  policy: 'dpo',
  beta: 0.3,
  aggregation: 'seq_mean_token_sum',
  entropyCoefficient: 0,
};

/** Two pairs, chosen before rejected; NaN where the loss must not look. */
const MASKS = [
  [0, 1, 1, 0, 1],
  [0, 1, 0, 0, 0],
  [0, 0, 1, 1, 1],
  [0, 1, 1, 1, 1],
];
const LOG_PROBS = [
  [Number.NaN, -0.2, -1.1, Number.NaN, -0.7],
  [Number.NaN, -2.5, Number.NaN, Number.NaN, Number.NaN],
  [Number.NaN, Number.NaN, -3, -0.4, -9],
  [Number.NaN, -0.1, -0.2, -0.3, -0.4],
];
const REFERENCE = [
  [Number.NaN, -0.9, -1.5, Number.NaN, -0.4],
  [Number.NaN, -1.5, Number.NaN, Number.NaN, Number.NaN],
  [Number.NaN, Number.NaN, -2, -0.9, -1],
  [Number.NaN, -0.4, -0.2, -0.8, -0.9],
];

/** What TRL's `DPOTrainer` computes with loss type `sigmoid`, in float64. */
function reference(logProbs: readonly (readonly number[])[]) {
  const ratios = MASKS.map((mask, i) =>
    mask.reduce((sum, on, t) => (on ? sum + logProbs[i][t] - REFERENCE[i][t] : sum), 0),
  );
  const margins = [0, 2].map(i => SETTINGS.beta * (ratios[i] - ratios[i + 1]));
  const mean = (values: readonly number[]) => values.reduce((a, b) => a + b, 0) / values.length;
  return {
    ratios,
    loss: mean(margins.map(margin => Math.log1p(Math.exp(-margin)))),
    metrics: {
      'rewards/margins': mean(margins),
      'rewards/accuracies': mean(margins.map(margin => (margin > 0 ? 1 : 0))),
      'rewards/chosen': SETTINGS.beta * mean([ratios[0], ratios[2]]),
      'rewards/rejected': SETTINGS.beta * mean([ratios[1], ratios[3]]),
    },
  };
}

function graphLoss(logProbs: readonly (readonly number[])[]) {
  const { ratios } = reference(logProbs);
  const sequences = MASKS.map(
    (mask, i): TrainingSequence => ({
      tokenIds: new Int32Array(LENGTH),
      lossMask: Uint8Array.from(mask),
      logProbs: Float32Array.from(logProbs[i]),
      advantages: new Float32Array(LENGTH),
      referenceLogProbs: Float32Array.from(REFERENCE[i]),
      preference: { chosen: i % 2 === 0, partnerLogRatio: ratios[i ^ 1] },
    }),
  );
  const structure = lossStructure(SETTINGS, { value: true, entropy: false });
  const counts = countLossTokens(sequences);
  const shape = [sequences.length, LENGTH];
  const g = new GraphBuilder();
  const input = g.input('logProbs', 'float32', shape);
  const inputs = declareLossInputs(g, structure, shape);
  const { loss, metrics } = buildUpdateLoss(g, { logProbs: input }, inputs, structure);
  g.output('loss', loss);
  for (const [name, metric] of metrics) g.output(name, metric);
  g.output('gradient', gradients(g, loss, [input])[0]);
  const rows = sequences.map(sequence => lossInputs(sequence, SETTINGS, structure, counts));
  const scalars = lossScalars(SETTINGS, counts);
  const feeds: Record<string, ArrayLike<number>> = { logProbs: logProbs.flat() };
  for (const name of inputs.tokens.keys())
    feeds[lossInputName(name)] = rows.flatMap(row => Array.from(row[name]!));
  for (const name of inputs.scalars.keys()) feeds[lossInputName(name)] = [scalars[name]];
  return interpret(g.build(), feeds);
}

t.test('loss, metrics and gradient are those of direct preference optimization', async t => {
  const expected = reference(LOG_PROBS);
  const { gradient, ...found } = graphLoss(LOG_PROBS);
  const near = (a: number, b: number, limit = 1e-6) => Math.abs(a - b) < limit;
  t.ok(near(found.loss[0], expected.loss), `${found.loss[0]} against ${expected.loss}`);
  t.ok(near(found['dpo/loss'][0], expected.loss));
  for (const [name, value] of Object.entries(expected.metrics)) {
    t.ok(near(found[name][0], value), `${name}: ${found[name][0]} against ${value}`);
  }
  const STEP = 1e-5;
  MASKS.forEach((mask, i) => {
    mask.forEach((on, k) => {
      const moved = (by: number) =>
        reference(LOG_PROBS.map((row, n) => row.map((value, m) => (n === i && m === k ? value + by : value))))
          .loss;
      const slope = on ? (moved(STEP) - moved(-STEP)) / (2 * STEP) : 0;
      t.ok(near(gradient[i * LENGTH + k], slope), `${gradient[i * LENGTH + k]} against ${slope}`);
    });
  });
});

t.test('settings without a meaning for pairs are refused', async t => {
  const refused = (over: Partial<LossSettings>, message: RegExp) =>
    t.throws(() => checkLossSettings({ ...SETTINGS, ...over }), message);
  t.doesNotThrow(() => checkLossSettings(SETTINGS));
  refused({ aggregation: 'token_mean' }, /use seq_mean_token_sum/);
  refused({ beta: 0 }, /loss\.beta is 0/);
  refused({ kl: { estimator: 'k3', coefficient: 0.1 } }, /set it to 0/);
});

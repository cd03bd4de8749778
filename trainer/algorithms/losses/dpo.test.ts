import t from 'tap';
import { golden } from '../../../test/golden.test-data.ts';
import { gradients } from '../../tensor/graph/gradients.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import { interpret } from '../../tensor/graph/interpreter.test-data.ts';
import type { TrainingSequence } from '../training-sequence.ts';
import { countLossTokens } from './aggregation.ts';
import { checkLossSettings } from './check-settings.ts';
import { lossInputs, lossScalars, lossStructure } from './inputs.ts';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from './settings.ts';
import { buildUpdateLoss, declareLossInputs, lossInputName } from './update-loss.ts';

const SETTINGS: LossSettings = {
  ...DEFAULT_LOSS_SETTINGS,
  policy: 'dpo',
  aggregation: 'seq_mean_token_sum',
  entropyCoefficient: 0,
};

/** Results of TRL's `DPOTrainer`, from test/golden/make-dpo.py: rows are the chosen responses, then the rejected ones. */
interface Case {
  readonly beta: number;
  readonly mask: readonly (readonly number[])[];
  readonly log_probs: readonly (readonly number[])[];
  readonly reference_log_probs: readonly (readonly number[])[];
  readonly loss: number;
  readonly gradient: readonly (readonly number[])[];
  readonly metrics: { readonly [name: string]: number };
}

/** Loss, metrics and gradient of the graph, with NaN where the loss must not look. */
function graphLoss({ beta, mask, log_probs, reference_log_probs }: Case) {
  const settings = { ...SETTINGS, beta };
  const ratios = mask.map((row, i) =>
    row.reduce((sum, on, t) => (on ? sum + log_probs[i][t] - reference_log_probs[i][t] : sum), 0),
  );
  const trained = (values: readonly number[], i: number) =>
    Float32Array.from(values, (value, t) => (mask[i][t] ? value : Number.NaN));
  const pairs = mask.length / 2;
  const length = mask[0].length;
  const sequences = mask.map(
    (row, i): TrainingSequence => ({
      tokenIds: new Int32Array(length),
      lossMask: Uint8Array.from(row),
      logProbs: trained(log_probs[i], i),
      advantages: new Float32Array(length),
      referenceLogProbs: trained(reference_log_probs[i], i),
      preference: { chosen: i < pairs, partnerLogRatio: ratios[(i + pairs) % mask.length] },
    }),
  );
  const structure = lossStructure(settings, { value: true, entropy: false });
  const counts = countLossTokens(sequences);
  const shape = [sequences.length, length];
  const g = new GraphBuilder();
  const input = g.input('logProbs', 'float32', shape);
  const inputs = declareLossInputs(g, structure, shape);
  const { loss, metrics } = buildUpdateLoss(g, { logProbs: input }, inputs, structure);
  g.output('loss', loss);
  for (const [name, metric] of metrics) g.output(name, metric);
  g.output('gradient', gradients(g, loss, [input])[0]);
  const rows = sequences.map(sequence => lossInputs(sequence, settings, structure, counts));
  const scalars = lossScalars(settings, counts);
  const feeds: Record<string, ArrayLike<number>> = {
    logProbs: sequences.flatMap(({ logProbs }) => Array.from(logProbs)),
  };
  for (const name of inputs.tokens.keys())
    feeds[lossInputName(name)] = rows.flatMap(row => Array.from(row[name]!));
  for (const name of inputs.scalars.keys()) feeds[lossInputName(name)] = [scalars[name]];
  return interpret(g.build(), feeds);
}

t.test('loss, metrics and gradient equal those of TRL’s DPOTrainer', async t => {
  const { cases } = golden<{ readonly cases: readonly Case[] }>('dpo.json');
  t.same(
    cases.map(({ beta }) => beta),
    [0.1, 0.7],
  );
  for (const one of cases) {
    const { gradient, ...found } = graphLoss(one);
    const near = (value: number, expected: number, what: string) =>
      t.ok(Math.abs(value - expected) < 1e-6, `${what}, β ${one.beta}: ${value} against ${expected}`);
    near(found.loss[0], one.loss, 'loss');
    near(found['dpo/loss'][0], one.loss, 'dpo/loss');
    for (const [name, value] of Object.entries(one.metrics)) near(found[name][0], value, name);
    one.gradient.flat().forEach((value, i) => {
      near(gradient[i], value, `gradient ${i}`);
    });
  }
});

t.test('settings without a meaning for pairs are refused', async t => {
  const refused = (over: Partial<LossSettings>, message: RegExp) =>
    t.throws(() => checkLossSettings({ ...SETTINGS, ...over }), message);
  t.doesNotThrow(() => checkLossSettings(SETTINGS));
  refused({ aggregation: 'token_mean' }, /use seq_mean_token_sum/);
  refused({ beta: 0 }, /loss\.beta is 0/);
  refused({ kl: { estimator: 'k3', coefficient: 0.1 } }, /set it to 0/);
});

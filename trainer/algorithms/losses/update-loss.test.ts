import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { gradients } from '../../tensor/graph/gradients.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import { interpret } from '../../tensor/graph/interpreter.test-data.ts';
import type { TrainingSequence } from '../training-sequence.ts';
import { countLossTokens, type LossCounts } from './aggregation.ts';
import { type AvailableLossInputs, lossInputs, lossScalars, lossStructure } from './inputs.ts';
import { addMetrics, finishMetrics } from './metric-sums.ts';
import { type CurrentOutputs, type LossResult, numericLoss } from './reference.test-data.ts';
import { POLICY_LOSSES, policyLoss } from './registry.ts';
import { AGGREGATIONS, DEFAULT_LOSS_SETTINGS, LOSS_KL_ESTIMATORS, type LossSettings } from './settings.ts';
import { buildUpdateLoss, declareLossInputs, lossInputName } from './update-loss.ts';

const LENGTH = 9;
const offer: AvailableLossInputs = { value: true, entropy: true };

/** A batch with NaN in all masked entries, which the loss must not read. */
function makeBatch(seed: number, count = 4): { sequences: TrainingSequence[]; outputs: CurrentOutputs[] } {
  const random = Random.fromSeed(seed);
  const array = (lossMask: Uint8Array, low: number, high: number) =>
    Float32Array.from(lossMask, on => (on ? low + (high - low) * random.float() : Number.NaN));
  const sequences: TrainingSequence[] = [];
  const outputs: CurrentOutputs[] = [];
  for (let i = 0; i < count; i++) {
    const lossMask = Uint8Array.from({ length: LENGTH }, (_, t) => (t > 1 && random.float() < 0.7 ? 1 : 0));
    lossMask[2] = 1;
    const entropyMask = lossMask.map((on, t) => (t % 2 === 0 ? on : 0));
    const logProbs = array(lossMask, -3, -0.1);
    const near = (spread: number) => logProbs.map(x => x + spread * (random.float() - 0.5));
    sequences.push({
      tokenIds: new Int32Array(LENGTH),
      lossMask: lossMask,
      entropyMask,
      logProbs,
      proximalLogProbs: near(1),
      referenceLogProbs: near(2),
      advantages: array(lossMask, -2, 2),
      returns: array(lossMask, -2, 2),
      values: array(lossMask, -2, 2),
      selected: lossMask.map((on, t) => (t % 3 === 0 ? on : 0)),
      weight: [1, 0.5, 0, 2][i % 4],
    });
    outputs.push({ logProbs: near(3), entropies: array(lossMask, 0, 2), values: array(lossMask, -2, 2) });
  }
  return { sequences, outputs };
}

/** The graph's loss, metrics and derivatives for a batch of one padded micro-batch. */
function graphLoss(
  sequences: readonly TrainingSequence[],
  outputs: readonly CurrentOutputs[],
  settings: LossSettings,
  counts: LossCounts,
  offered = offer,
): LossResult & { readonly parts: Readonly<Record<string, number>> } {
  const structure = lossStructure(settings, offered);
  const shape = [sequences.length, LENGTH];
  const g = new GraphBuilder();
  const logProbs = g.input('logProbs', 'float32', shape);
  const entropies = g.input('entropies', 'float32', shape);
  const values = g.input('values', 'float32', shape);
  const inputs = declareLossInputs(g, structure, shape);
  const { loss, metrics } = buildUpdateLoss(g, { logProbs, entropies, values }, inputs, structure);
  g.output('loss', loss);
  for (const [name, metric] of metrics) g.output(name, metric);
  const wrt = gradients(g, loss, [logProbs, entropies, values]);
  wrt.forEach((gradient, i) => {
    g.output(`gradient ${i}`, gradient);
  });

  const flatten = (rows: readonly ArrayLike<number>[]) => rows.flatMap(row => Array.from(row));
  const feeds: Record<string, ArrayLike<number>> = {
    logProbs: flatten(outputs.map(output => output.logProbs)),
    entropies: flatten(outputs.map(output => output.entropies!)),
    values: flatten(outputs.map(output => output.values!)),
  };
  const rows = sequences.map(sequence => lossInputs(sequence, settings, structure, counts));
  for (const name of inputs.tokens.keys()) {
    feeds[lossInputName(name)] = flatten(rows.map(row => row[name]!));
  }
  const scalars = lossScalars(settings, counts);
  for (const name of inputs.scalars.keys()) feeds[lossInputName(name)] = [scalars[name]];
  const results = interpret(g.build(), feeds);
  const split = (name: string) => sequences.map((_, i) => results[name].slice(i * LENGTH, (i + 1) * LENGTH));
  return {
    loss: results.loss[0],
    metrics: finishMetrics(Object.fromEntries([...metrics.keys()].map(name => [name, results[name][0]]))),
    parts: Object.fromEntries([...metrics.keys()].map(name => [name, results[name][0]])),
    gradients: { logProbs: split('gradient 0'), entropies: split('gradient 1'), values: split('gradient 2') },
  };
}

/** Largest difference; NaN anywhere makes it NaN and the comparison false. */
function difference(a: LossResult, b: LossResult): number {
  let largest = Math.abs(a.loss - b.loss);
  const see = (x: number, y: number) => {
    const d = Math.abs(x - y);
    largest = Number.isNaN(d) || d > largest ? d : largest;
  };
  // Metrics over tokens have a test by themselves.
  for (const name of Object.keys(b.metrics)) see(a.metrics[name], b.metrics[name]);
  for (const key of ['logProbs', 'entropies', 'values'] as const) {
    a.gradients[key].forEach((row, i) => {
      row.forEach((x, k) => {
        see(x, b.gradients[key][i][k]);
      });
    });
  }
  return largest;
}

function variants(): [string, LossSettings][] {
  const list: [string, LossSettings][] = [];
  const base: LossSettings = {
    ...DEFAULT_LOSS_SETTINGS,
    entropyCoefficient: 0.03,
    maxResponseLength: 12,
    kl: { ...DEFAULT_LOSS_SETTINGS.kl, estimator: 'k3', coefficient: 0.2 },
    dro: { beta: 0.3 },
  };
  // Pairs have a test by themselves.
  for (const policy of POLICY_LOSSES.filter(name => policyLoss(name).kind !== 'preference')) {
    const aggregation = ['gspo', 'sapo', 'gmpo'].includes(policy) ? 'seq_mean_token_mean' : 'token_mean';
    list.push([policy, { ...base, policy, aggregation }]);
  }
  for (const aggregation of AGGREGATIONS) list.push([aggregation, { ...base, aggregation }]);
  for (const estimator of LOSS_KL_ESTIMATORS) {
    list.push([estimator, { ...base, kl: { ...base.kl, estimator } }]);
  }
  list.push([
    'dppo by KL',
    { ...base, policy: 'dppo', dppo: { ...base.dppo, divergence: 'kl', ratioCap: 2 } },
  ]);
  list.push(['no dual clip', { ...base, dualClip: 0 }]);
  list.push(['low dual clip', { ...base, dualClip: 1.1 }]);
  list.push(['no value clip', { ...base, value: { coefficient: 1, clip: 0 } }]);
  list.push(['no KL', { ...base, kl: { estimator: 'k3', coefficient: 0 } }]);
  list.push(['tis', { ...base, offPolicy: { kind: 'tis', cap: 1.1 } }]);
  list.push(['icepop', { ...base, offPolicy: { kind: 'icepop', low: 0.8, high: 1.2 } }]);
  list.push(['geometric_mask', { ...base, offPolicy: { kind: 'geometric_mask', low: 0.95, high: 1.05 } }]);
  return list;
}

/** float32 inputs hold the weights, so agreement ends at about 1e-7. */
const FLOAT32 = 1e-6;

for (const [name, settings] of variants()) {
  t.test(`the graph equals the reference: ${name}`, async t => {
    for (const seed of [1, 2, 3]) {
      const { sequences, outputs } = makeBatch(seed);
      const counts = countLossTokens(sequences);
      const structure = lossStructure(settings, offer);
      const wanted = numericLoss(sequences, outputs, settings, structure, counts);
      const found = graphLoss(sequences, outputs, settings, counts);
      t.ok(Number.isFinite(wanted.loss) && wanted.loss !== 0, 'the batch has a loss');
      t.ok(difference(found, wanted) < FLOAT32, `seed ${seed}`);
    }
  });

  t.test(`micro-batches add up to the step: ${name}`, async t => {
    const { sequences, outputs } = makeBatch(4, 6);
    const counts = countLossTokens(sequences);
    const whole = graphLoss(sequences, outputs, settings, counts);
    const parts = [
      [0, 1],
      [1, 4],
      [4, 6],
    ].map(([from, to]) => graphLoss(sequences.slice(from, to), outputs.slice(from, to), settings, counts));
    const sum = parts.reduce((total, part) => total + part.loss, 0);
    t.ok(Math.abs(sum - whole.loss) < 1e-12, 'loss');
    const total: Record<string, number> = {};
    for (const part of parts) addMetrics(total, part.parts);
    const finished = finishMetrics(total);
    t.same(Object.keys(finished), Object.keys(whole.metrics));
    for (const key of Object.keys(whole.metrics)) {
      t.ok(Math.abs(finished[key] - whole.metrics[key]) < 1e-12, key);
    }
    const rows = parts.flatMap(part => part.gradients.logProbs);
    t.same(rows, whole.gradients.logProbs, 'gradients');
  });
}

/** Losses that stop some gradients on purpose; the others have those of the loss itself. */
const STOPPED = ['cispo', 'gspo', 'dppo', 'dppo by KL', 'gmpo', 'reverse'];
const differentiable = variants().filter(([name]) => !STOPPED.includes(name));

for (const [name, settings] of differentiable) {
  t.test(`derivatives by hand match finite differences: ${name}`, async t => {
    const { sequences, outputs } = makeBatch(5);
    const counts = countLossTokens(sequences);
    const structure = lossStructure(settings, offer);
    const at = (changed: readonly CurrentOutputs[]) =>
      numericLoss(sequences, changed, settings, structure, counts);
    const { gradients: analytic } = at(outputs);
    const STEP = 1e-6;
    let checked = 0;
    for (const key of ['logProbs', 'entropies', 'values'] as const) {
      sequences.forEach((sequence, i) => {
        for (let k = 0; k < LENGTH; k++) {
          if (!sequence.lossMask[k]) continue;
          const moved = (step: number) => {
            const array = Float64Array.from(outputs[i][key]!);
            array[k] += step;
            return at(outputs.with(i, { ...outputs[i], [key]: array })).loss;
          };
          const numeric = (moved(STEP) - moved(-STEP)) / (2 * STEP);
          checked++;
          if (Math.abs(numeric - analytic[key][i][k]) > 1e-7) t.fail(`${key} of sequence ${i}, token ${k}`);
        }
      });
    }
    t.ok(checked > 30);
  });
}

t.test('gspo moves a sequence as its true gradient does when advantages are equal', async t => {
  const settings: LossSettings = {
    ...DEFAULT_LOSS_SETTINGS,
    policy: 'gspo',
    aggregation: 'seq_mean_token_mean',
    clipLow: 0.9,
    clipHigh: 9,
    entropyCoefficient: 0,
  };
  const { sequences: random, outputs } = makeBatch(6);
  const sequences = random.map(sequence => ({
    ...sequence,
    advantages: new Float32Array(LENGTH).fill(-0.7),
  }));
  const counts = countLossTokens(sequences);
  const structure = lossStructure(settings, { value: false, entropy: false });
  const at = (changed: readonly CurrentOutputs[]) =>
    numericLoss(sequences, changed, settings, structure, counts);
  const STEP = 1e-6;
  const moved = (step: number) => {
    const logProbs = Float64Array.from(outputs[0].logProbs);
    logProbs[2] += step;
    return at(outputs.with(0, { ...outputs[0], logProbs })).loss;
  };
  const numeric = (moved(STEP) - moved(-STEP)) / (2 * STEP);
  const own = at(outputs).gradients.logProbs[0][2];
  t.not(own, 0);
  t.ok(Math.abs(numeric - own) < 1e-7);
});

t.test(
  'a first update has ratio 1: no clipping, no KL, and the loss is minus the mean advantage',
  async t => {
    const { sequences } = makeBatch(7, 1);
    const [sequence] = sequences;
    const batch = [{ ...sequence, referenceLogProbs: sequence.logProbs }];
    const outputs = [{ logProbs: sequence.logProbs, entropies: sequence.values, values: sequence.values }];
    const settings = { ...DEFAULT_LOSS_SETTINGS, kl: { estimator: 'k3' as const, coefficient: 1 } };
    const { metrics } = graphLoss(batch, outputs, settings, countLossTokens(batch));
    const trained = Array.from(sequence.advantages).filter((_, k) => sequence.lossMask[k]);
    const meanAdvantage = trained.reduce((a, b) => a + b, 0) / trained.length;
    t.equal(metrics['actor/pg_clipfrac'], 0);
    t.equal(Math.abs(metrics['actor/ppo_kl']), 0);
    t.equal(metrics['actor/kl_loss'], 0);
    t.ok(Math.abs(metrics['actor/pg_loss'] + meanAdvantage) < FLOAT32);
  },
);

t.test('missing arrays are named', async t => {
  const { sequences } = makeBatch(8, 1);
  const [{ proximalLogProbs: _, ...sequence }] = sequences;
  const settings = { ...DEFAULT_LOSS_SETTINGS, policy: 'decoupled_ppo' as const };
  const counts = countLossTokens([sequence]);
  t.throws(() => lossInputs(sequence, settings, lossStructure(settings, offer), counts), {
    message: 'decoupled_ppo needs "proximalLogProbs", which a training sequence lacks',
  });
});

t.test('a critic has the value term alone', async t => {
  const { sequences, outputs } = makeBatch(11);
  const settings = { ...DEFAULT_LOSS_SETTINGS, kl: { estimator: 'k3' as const, coefficient: 0.2 } };
  const counts = countLossTokens(sequences);
  const whole = graphLoss(sequences, outputs, settings, counts);
  const critic = graphLoss(sequences, outputs, settings, counts, {
    value: true,
    entropy: false,
    policy: false,
  });
  t.same(Object.keys(critic.metrics), ['critic/vf_loss', 'critic/vf_clipfrac', 'critic/vpred_mean']);
  t.ok(Math.abs(critic.loss - settings.value.coefficient * whole.metrics['critic/vf_loss']) < 1e-12);
  t.same(critic.gradients.values, whole.gradients.values);
  t.ok(critic.gradients.logProbs.every(row => row.every(x => x === 0)));
});

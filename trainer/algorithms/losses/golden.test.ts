import { readFileSync } from 'node:fs';
import t from 'tap';
import type { TrainingSequence } from '../training-sequence.ts';
import { countLossTokens } from './aggregation.ts';
import { lossStructure } from './inputs.ts';
import { klEstimate } from './kl.ts';
import { offPolicyWeights } from './off-policy.ts';
import {
  cispoLoss,
  clippedSurrogate,
  gspoLoss,
  meanLogRatio,
  ppoLoss,
} from './policy-reference.test-data.ts';
import { aggregate, numericLoss, valueLoss } from './reference.test-data.ts';
import { type Aggregation, DEFAULT_LOSS_SETTINGS, type KlEstimator, type LossSettings } from './settings.ts';

type Matrix = number[][];
type LossCase = Record<string, Matrix> &
  Record<
    string,
    { pg_loss: number; clipfrac: number; clipfrac_lower: number; ppo_kl: number; entropy: number }
  > & {
    value: { vpreds: Matrix; returns: Matrix; loss: number; clipfrac: number };
  };
interface Case {
  readonly mask: Matrix;
  readonly values: Matrix;
  readonly loss: LossCase;
}

const folder = new URL('../../../test/golden/', import.meta.url);
const read = (name: string) => JSON.parse(readFileSync(new URL(name, folder), 'utf8'));
const { cases } = read('advantages_losses.json') as { cases: Case[] };
const closed = read('closed_form.json');
const close = (found: number, wanted: number) =>
  Math.abs(found - wanted) < 1e-4 * Math.max(1, Math.abs(wanted));
const exact = (found: number, wanted: number) => Math.abs(found - wanted) < 1e-6;
const clip = { clipLow: 0.2, clipHigh: 0.28, dualClip: 3 };

function sequences({ mask, loss, values }: Case): TrainingSequence[] {
  return mask.map((row, i) => ({
    tokenIds: new Int32Array(row.length),
    lossMask: Uint8Array.from(row),
    logProbs: Float32Array.from(loss.old_log_prob[i]),
    advantages: Float32Array.from(loss.advantages[i]),
    values: Float32Array.from(values[i]),
    returns: Float32Array.from(loss.value.returns[i]),
  }));
}

cases.forEach((data, number) => {
  const { loss, mask } = data;
  const batch = sequences(data);
  const counts = countLossTokens(batch);
  const run = (settings: LossSettings) => {
    const structure = lossStructure(settings, { value: true, entropy: true });
    const outputs = mask.map((_, i) => ({
      logProbs: loss.log_prob[i],
      entropies: loss.entropy[i],
      values: loss.value.vpreds[i],
    }));
    return numericLoss(batch, outputs, settings, structure, counts);
  };

  t.test(`golden PPO in four aggregations, case ${number}`, async t => {
    const length = mask[0].length;
    const modes: [string, Aggregation, number][] = [
      ['token-mean', 'token_mean', 1],
      ['seq-mean-token-sum', 'seq_mean_token_sum', 1],
      ['seq-mean-token-mean', 'seq_mean_token_mean', 1],
      // verl divides by L only, SPEC's dr_grpo by B·L.
      ['seq-mean-token-sum-norm', 'dr_grpo', mask.length],
    ];
    for (const [key, aggregation, factor] of modes) {
      const settings = { ...DEFAULT_LOSS_SETTINGS, aggregation, maxResponseLength: length };
      const { metrics } = run(settings);
      const wanted = loss[key];
      t.ok(close(factor * metrics['actor/pg_loss'], wanted.pg_loss), `${key} pg_loss`);
      t.ok(close(metrics['actor/pg_clipfrac'], wanted.clipfrac), `${key} clipfrac`);
      t.ok(close(metrics['actor/pg_clipfrac_lower'], wanted.clipfrac_lower), `${key} clipfrac_lower`);
      t.ok(close(metrics['actor/ppo_kl'], wanted.ppo_kl), `${key} ppo_kl`);
      t.ok(
        close(factor * aggregate(loss.entropy, mask, aggregation, length), wanted.entropy),
        `${key} entropy`,
      );
    }
  });

  t.test(`golden value loss, case ${number}`, async t => {
    const { metrics } = run(DEFAULT_LOSS_SETTINGS);
    t.ok(close(metrics['critic/vf_loss'], loss.value.loss), 'loss');
    t.ok(close(metrics['critic/vf_clipfrac'], loss.value.clipfrac), 'clipfrac');
  });

  t.test(`golden KL estimators, case ${number}`, async t => {
    const names: [KlEstimator, string][] = [
      ['k1', 'kl_kl'],
      ['abs', 'kl_abs'],
      ['k2', 'kl_mse'],
      ['k3', 'kl_low_var_kl'],
    ];
    for (const [estimator, key] of names) {
      const found = loss.log_prob.map((row, i) =>
        row.map((logProb, k) => klEstimate(estimator, logProb - loss.ref_log_prob[i][k])),
      );
      t.ok(
        found.every((row, i) => row.every((value, k) => close(value, loss[key][i][k]))),
        estimator,
      );
    }
  });
});

t.test('closed form: KL estimators', async t => {
  for (const estimator of ['k1', 'k2', 'k3'] as const) {
    t.ok(exact(klEstimate(estimator, 0.5), closed['kl_d.5'][estimator]), `${estimator} of 0.5`);
    t.ok(exact(klEstimate(estimator, -0.5), closed['kl_d-.5'][estimator]), `${estimator} of −0.5`);
  }
});

t.test('closed form: clipped surrogate with dual clip', async t => {
  for (const [key, wanted] of Object.entries(closed.ppo as Record<string, number>)) {
    const [ratio, advantage] = key.split(',').map(part => Number(part.split('=')[1]));
    t.ok(exact(clippedSurrogate(ratio, advantage, clip).loss, wanted), key);
  }
});

t.test('closed form: value loss', async t => {
  t.ok(exact(valueLoss(0.9, 0.5, 0, 0.2).loss, closed.vloss_R0));
  t.ok(exact(valueLoss(0.9, 0.5, 1, 0.2).loss, closed.vloss_R1));
});

t.test('closed form: aggregations', async t => {
  const losses = [
    [1, 2],
    [1, 1, 1, 1],
  ];
  const masks = losses.map(row => row.map(() => 1));
  t.ok(exact(aggregate(losses, masks, 'token_mean', 4), closed.agg['token-mean']), 'token_mean');
  t.ok(
    exact(aggregate(losses, masks, 'seq_mean_token_mean', 4), closed.agg['seq-mean-token-mean']),
    'mean of means',
  );
  t.ok(
    exact(aggregate(losses, masks, 'seq_mean_token_sum', 4), closed.agg['seq-mean-token-sum']),
    'mean of sums',
  );
  t.ok(exact(aggregate(losses, masks, 'dr_grpo', 4), closed.agg['dr_grpo(L=4)']), 'dr_grpo');
});

t.test('closed form: GSPO ratio', async t => {
  const input = {
    lossMask: [1, 1, 1],
    logProbs: [0.1, -0.3, 0.5],
    oldLogProbs: [0, 0, 0],
    advantages: [1, 1, 1],
  };
  t.ok(exact(Math.exp(meanLogRatio(input)), closed.gspo_s));
  t.ok(exact(gspoLoss(input, clip).losses[1], -closed.gspo_s));
});

t.test('closed form: decoupled PPO and its corrections', async t => {
  const input = { lossMask: [1], proximalLogProbs: [-1.1], behaviorLogProbs: [-1.6] };
  const [weight] = offPolicyWeights(input, { kind: 'none' });
  const { losses } = ppoLoss({ lossMask: [1], logProbs: [-1], oldLogProbs: [-1.1], advantages: [1] }, clip);
  t.ok(exact(weight, closed.decoupled_A1.w), 'weight');
  t.ok(exact(-losses[0], closed.decoupled_A1.ratio), 'ratio');
  t.ok(exact(weight * losses[0], closed.decoupled_A1.loss), 'loss');
  t.ok(exact(offPolicyWeights(input, { kind: 'tis', cap: 1.5 })[0], closed['tis_C1.5']), 'TIS');
  const icepop = (high: number) => offPolicyWeights(input, { kind: 'icepop', low: 0.5, high })[0];
  t.ok(exact(icepop(2), closed['icepop_.5_2']), 'IcePop inside');
  t.ok(exact(icepop(1.5), closed['icepop_.5_1.5']), 'IcePop outside');
});

t.test('closed form: CISPO clips the weight and keeps the gradient', async t => {
  const logProb = -0.7;
  const input = {
    lossMask: [1],
    logProbs: [logProb],
    oldLogProbs: [logProb - Math.log(1.5)],
    advantages: [1],
  };
  const { losses, derivatives } = cispoLoss(input, { ...clip, clipHigh: 0.2 });
  t.ok(exact(losses[0], closed.cispo));
  t.ok(exact(derivatives[0], -1.2));
});

import { readFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { gradients } from '../../tensor/graph/gradients.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import { interpret } from '../../tensor/graph/interpreter.test-data.ts';
import { selectByCovariance } from './covariance/selection.ts';
import { lossScalars, lossStructure } from './inputs.ts';
import { policyLoss } from './registry.ts';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from './settings.ts';
import { buildUpdateLoss, declareLossInputs, lossInputName } from './update-loss.ts';

type Matrix = number[][];
interface Batch {
  readonly mask: Matrix;
  readonly log_prob: Matrix;
  readonly old_log_prob: Matrix;
  readonly rollout_log_prob: Matrix;
  readonly advantages: Matrix;
}
interface Case {
  readonly source: string;
  readonly function: string;
  readonly batch: string;
  readonly settings: Readonly<Record<string, number | string>>;
  readonly terms?: Matrix;
  readonly gradient_of_token_mean?: Matrix;
  readonly gradient_of_sum?: Matrix;
  readonly gradient?: Matrix;
  readonly loss?: number;
  readonly losses?: Readonly<Record<string, number>>;
  readonly loss_for_every_mode?: number;
  readonly metrics?: Readonly<Record<string, number>>;
  readonly permutation?: readonly number[];
  readonly ref_log_prob?: Matrix;
  readonly rollout_is_weights?: Matrix;
  readonly sequence_advantages?: readonly number[];
}

const golden = JSON.parse(
  readFileSync(new URL('../../../test/golden/algorithms_2026.json', import.meta.url), 'utf8'),
) as {
  batches: Record<string, Batch>;
  policy_losses: Case[];
  masked_non_finite: { log_prob: (number | string)[][] }[];
  distillation: SelfDistillation[];
};

/** TRL's self-distillation of two completions of four tokens from a vocabulary of six. */
interface SelfDistillation {
  readonly set: string;
  readonly student_logits: Matrix[];
  readonly teacher_logits: Matrix[];
  readonly completion_ids: Matrix;
  readonly old_log_probs: Matrix;
  readonly cases: {
    readonly function: string;
    readonly alpha: number;
    readonly terms: Matrix;
    readonly gradient_of_sum_wrt_student_logits: Matrix[];
  }[];
}

interface Run {
  /** Σ over the weighted terms, and its derivative with respect to log π_θ. */
  readonly loss: number;
  readonly gradient: Matrix;
}

/** A policy loss, or the KL stream, of a padded batch in float64. */
function run(
  batch: Batch,
  change: Partial<LossSettings>,
  extra: {
    anchor?: Matrix;
    weights?: Matrix;
    selected?: readonly ArrayLike<number>[];
    reference?: Matrix;
  } = {},
): Run {
  const settings: LossSettings = { ...DEFAULT_LOSS_SETTINGS, entropyCoefficient: 0, dualClip: 0, ...change };
  const shape = [batch.mask.length, batch.mask[0].length];
  const structure = lossStructure(settings, { value: false, entropy: false });
  const g = new GraphBuilder();
  const logProbs = g.input('logProbs', 'float32', shape);
  const inputs = declareLossInputs(g, structure, shape);
  const { loss } = buildUpdateLoss(g, { logProbs }, inputs, structure);
  g.output('loss', loss);
  g.output('gradient', gradients(g, loss, [logProbs])[0]);
  const masked = (rows: readonly ArrayLike<number>[]) =>
    rows.flatMap((row, i) => Array.from(row, (x, k) => (batch.mask[i][k] ? x : 0)));
  const ones = batch.mask.map(row => row.map(() => 1));
  const own = batch.mask.map(row => row.reduce((a, b) => a + b, 0));
  const tokens: Record<string, number[]> = {
    lossMask: batch.mask.flat(),
    oldLogProbs: masked(extra.anchor ?? batch.old_log_prob),
    advantages: masked(batch.advantages),
    policyWeights: masked(extra.weights ?? ones),
    klWeights: masked(ones),
    crossEntropyWeights: batch.mask.flat().map(() => 0),
    referenceLogProbs: masked(extra.reference ?? ones),
    meanWeights: masked(own.map(count => batch.mask[0].map(() => 1 / count))),
    selected: masked(extra.selected ?? ones),
  };
  const feeds: Record<string, number[]> = { logProbs: batch.log_prob.flat() };
  for (const name of inputs.tokens.keys()) feeds[lossInputName(name)] = tokens[name];
  const scalars = lossScalars(settings, { tokens: 1, sequences: 1, entropyTokens: 1, entropySequences: 1 });
  for (const name of inputs.scalars.keys()) feeds[lossInputName(name)] = [scalars[name]];
  const results = interpret(g.build(), feeds);
  const row = (i: number) => Array.from(results.gradient.slice(i * shape[1], (i + 1) * shape[1]));
  return { loss: results.loss[0], gradient: batch.mask.map((_, i) => row(i)) };
}

const near = (found: number, wanted: number, tolerance = 1e-6) =>
  Math.abs(found - wanted) <= tolerance * Math.max(1, Math.abs(wanted));
const sum = (rows: Matrix) => rows.flat().reduce((a, b) => a + b, 0);
const same = (
  found: Matrix,
  wanted: Matrix,
  factor = 1,
  skip: (i: number, k: number) => boolean = () => false,
) => wanted.every((row, i) => row.every((x, k) => skip(i, k) || near(found[i][k], factor * x)));

/** The originals' settings as ragen's. */
function settingsOf({ function: name, settings: s }: Case): Partial<LossSettings> {
  const number = (key: string, usual: number) => (s[key] === undefined ? usual : Number(s[key]));
  const { dppo, kl } = DEFAULT_LOSS_SETTINGS;
  const limits = { low: number('clip_ratio_low', 0.2), high: number('clip_ratio_high', 0.2) };
  switch (name) {
    case 'dppo_tv':
    case 'dppo_kl':
      return {
        policy: 'dppo',
        dppo: {
          divergence: name === 'dppo_tv' ? 'tv' : 'kl',
          ...limits,
          ratioCap: number('clip_ratio_c', 3),
          klTau: 0,
        },
      };
    case 'dppo':
      return {
        policy: 'dppo',
        dppo: {
          divergence: s.dppo_type === 'binary_tv' ? 'tv' : 'kl',
          low: number('delta_low', 0),
          high: number('delta_high', 0),
          ratioCap: 1e30,
          klTau: 0,
        },
      };
    case 'default_loss_fn':
      return {
        policy: 'dppo',
        dppo: {
          ...dppo,
          low: number('dppo_mask_low', 0),
          high: number('dppo_mask_high', 0),
          klTau: number('kl_tau', 0),
          ratioCap: 1e30,
        },
      };
    case 'ipo_loss_fn':
      return { policy: 'ipo', ipo: { threshold: number('ipo_threshold', 0), klTau: number('kl_tau', 0) } };
    case 'ref_kl_loss_fn':
      return { policy: 'cross_entropy', kl: { ...kl, estimator: 'reverse', coefficient: 1, ratioCap: 1e30 } };
    case 'sapo':
      return { policy: 'sapo', sapo: { tauPos: number('tau_pos', 1), tauNeg: number('tau_neg', 1.05) } };
    case 'geo_mean':
      return { policy: 'gmpo', gmpo: limits };
    case 'GMPOTrainer._compute_loss':
      return { policy: 'gmpo', gmpo: { low: number('epsilon_low', 0), high: number('epsilon_high', 0) } };
    case 'dro':
      return { policy: 'dro', dro: { beta: number('dro_beta', 0) } };
    case 'cispo': {
      const keys = s.cispo_anchor
        ? ['cispo_eps_clip_low', 'cispo_eps_clip_high']
        : ['clip_ratio_low', 'clip_ratio_high'];
      return { policy: 'cispo', clipLow: number(keys[0], 0), clipHigh: number(keys[1], 0) };
    }
    case 'clip_cov':
      return {
        policy: 'clip_cov',
        clipLow: 0.2,
        clipHigh: 0.2,
        clipCov: { ratio: number('clip_cov_ratio', 2e-4), low: 1, high: 5 },
      };
    case 'kl_cov':
      return {
        policy: 'kl_cov',
        klCov: {
          ratio: number('kl_cov_ratio', number('kl_cov_frac', 2e-4)),
          coefficient: number('ppo_kl_coef', 0.1),
        },
      };
    default:
      throw new Error(`no loss of ragen for ${name}`);
  }
}

function selectionOf(batch: Batch, change: Partial<LossSettings>, permutation: readonly number[] = []) {
  const settings = { ...DEFAULT_LOSS_SETTINGS, ...change };
  if (!policyLoss(settings.policy).selects) return undefined;
  const sequences = batch.mask.map((lossMask, i) => ({
    lossMask,
    advantages: batch.advantages[i],
    logProbs: batch.log_prob[i],
    oldLogProbs: batch.old_log_prob[i],
  }));
  return selectByCovariance(sequences, settings, items => permutation.map(i => items[i])).selected;
}

const streams = ['ce_loss_fn', 'compute_loss'];
golden.policy_losses.forEach((data, index) => {
  if (streams.includes(data.function)) return;
  const batch = golden.batches[data.batch];
  const name = `${data.source} ${data.function} on ${data.batch}, case ${index}`;
  const change = settingsOf(data);
  const fromRollout =
    data.source === 'prime-rl' ||
    data.settings.cispo_anchor === 'rollout' ||
    data.settings.anchor === 'rollout';
  const anchor = fromRollout ? batch.rollout_log_prob : batch.old_log_prob;
  const tokens = sum(batch.mask);
  const isSequenceLevel = change.policy === 'gmpo';
  if (isSequenceLevel || change.policy === 'sapo') {
    t.test(`golden ${name}`, async t => checkSequenceMean(t, data, batch, change));
    return;
  }

  t.test(`golden ${name}`, async t => {
    const scaled =
      data.settings.adv_tau === 0.5 ? batch.advantages.map(row => row.map(a => a / 2)) : batch.advantages;
    const selected = selectionOf(batch, change, data.permutation);
    const found = run({ ...batch, advantages: scaled }, change, {
      anchor,
      selected,
      weights: data.rollout_is_weights,
      ...(data.ref_log_prob ? { reference: data.ref_log_prob } : {}),
    });
    // The log-ratio is clamped to ±20 here and not in prime-rl; its tokens beyond that are left out.
    const beyond = (i: number, k: number) =>
      data.source === 'prime-rl' && Math.abs(batch.log_prob[i][k] - anchor[i][k]) > 20;
    const wanted = data.gradient_of_token_mean ?? data.gradient_of_sum!;
    t.ok(same(found.gradient, wanted, data.gradient_of_token_mean ? tokens : 1, beyond), 'gradient');
    const isValue = data.source === 'verl' || data.function === 'cispo' || data.function === 'kl_cov';
    if (isValue) t.ok(near(found.loss, sum(data.terms!)), 'sum of the terms');
    t.ok(
      found.gradient.every((row, i) => row.every((x, k) => batch.mask[i][k] || x === 0)),
      'masked tokens',
    );
  });
});

/** Losses that are a mean over sequences. For GMPO verl and TRL divide by all of them, also by those without tokens. */
function checkSequenceMean(t: Test, data: Case, batch: Batch, change: Partial<LossSettings>): void {
  const own = batch.mask.map(row => row.reduce((a, b) => a + b, 0));
  const advantages = data.sequence_advantages
    ? batch.mask.map((row, i) => row.map(() => data.sequence_advantages![i]))
    : batch.advantages;
  const uniform = advantages.every((row, i) => {
    const trained = row.filter((_, k) => batch.mask[i][k]);
    return trained.every(a => a === trained[0]);
  });
  if (change.policy === 'gmpo' && !uniform) {
    t.pass('refused: the advantages of a sequence differ');
    return;
  }
  const counted = change.policy === 'gmpo' ? own.length : own.filter(count => count > 0).length;
  const geometric = (i: number) => {
    const logs = data.rollout_is_weights![i].filter((_, k) => batch.mask[i][k]).map(Math.log);
    return Math.exp(logs.reduce((a, b) => a + b, 0) / Math.max(1, logs.length));
  };
  const weight = (i: number, k: number) => {
    if (!data.rollout_is_weights) return 1;
    return change.policy === 'gmpo' ? geometric(i) : data.rollout_is_weights[i][k];
  };
  const weights = batch.mask.map((row, i) => row.map((_, k) => weight(i, k) / (own[i] * counted)));
  const found = run({ ...batch, advantages }, change, { weights });
  // TRL gives a sequence without tokens the loss of ratio 1.
  const empty =
    data.sequence_advantages?.reduce((sum, a, i) => (own[i] > 0 ? sum : sum - a / own.length), 0) ?? 0;
  t.ok(near(found.loss + empty, data.loss ?? data.loss_for_every_mode!), `loss ${found.loss}`);
  t.ok(same(found.gradient, data.gradient ?? data.gradient_of_token_mean!), 'gradient');
}

t.test('tokens outside the mask reach no loss, NaN and infinities included', async t => {
  for (const { log_prob } of golden.masked_non_finite) {
    const row = log_prob[0].map(Number);
    const batch: Batch = {
      mask: [[1, 1, 0]],
      log_prob: [row],
      old_log_prob: [[-0.6, -0.9, -1]],
      rollout_log_prob: [[-0.6, -0.9, -1]],
      advantages: [[1, 1, 1]],
    };
    for (const policy of ['dppo', 'ipo', 'sapo', 'gmpo', 'dro', 'cispo', 'clip_cov', 'kl_cov']) {
      const { loss, gradient } = run(batch, { policy, dro: { beta: 0.5 } }, { selected: [[0, 1, 1]] });
      t.ok(Number.isFinite(loss), policy);
      t.equal(gradient[0][2], 0, policy);
    }
  }
});

const sdft = golden.distillation.find(({ set }) => set === 'sdft')!;
const sdftCase = (name: string, alpha: number) =>
  sdft.cases.find(({ function: own, alpha: a }) => own === name && a === alpha)!;
const logSoftmax = (logits: readonly number[]) => {
  const norm = Math.log(logits.reduce((total, x) => total + Math.exp(x), 0));
  return logits.map(x => x - norm);
};
const student = sdft.student_logits.map(rows => rows.map(logSoftmax));
const teacher = sdft.teacher_logits.map(rows => rows.map(logSoftmax));

/** d loss / d log π_θ of tokens by `loss.kl.estimator: reverse` with TRL's settings. */
function reverseGradient(tokens: Matrix, old?: Matrix): Matrix {
  const own = (of: readonly Matrix[]) => tokens.map((row, i) => row.map((token, k) => of[i][k][token]));
  const batch: Batch = {
    mask: tokens.map(row => row.map(() => 1)),
    log_prob: own(student),
    old_log_prob: old ?? own(student),
    rollout_log_prob: old ?? own(student),
    advantages: tokens.map(row => row.map(() => 0)),
  };
  const kl = { estimator: 'reverse', coefficient: 1, ratioCap: 2, keepLow: 1, tau: 0 } as const;
  return run(batch, { policy: 'cross_entropy', kl }, { reference: own(teacher) }).gradient;
}
/** From d / d log π(token) to d / d logits. */
const byLogits = (gradient: number, i: number, k: number, token: number) =>
  student[i][k].map((lp, j) => gradient * ((j === token ? 1 : 0) - Math.exp(lp)));

t.test('golden TRL SDFT, sampled_token', async t => {
  const found = reverseGradient(sdft.completion_ids);
  const wanted = sdftCase('sampled_token', 1).gradient_of_sum_wrt_student_logits;
  sdft.completion_ids.forEach((row, i) => {
    const rows = row.map((token, k) => byLogits(found[i][k], i, k, token));
    t.ok(same(rows, wanted[i]), `gradient of completion ${i}`);
  });
});

t.test('golden TRL SDFT, the clipped ratio of stale samples', async t => {
  const clipped = sdftCase('full_logits + importance_sampling_clipping', 0.5).terms;
  const plain = sdftCase('full_logits', 0.5).terms;
  const fresh = reverseGradient(sdft.completion_ids);
  const stale = reverseGradient(sdft.completion_ids, sdft.old_log_probs);
  const wanted = fresh.map((row, i) => row.map((x, k) => x * (clipped[i][k] / plain[i][k])));
  t.ok(same(stale, wanted));
  t.notOk(same(fresh, wanted), 'the ratios matter');
});

t.test('golden TRL SDFT, full_logits with alpha 1 is the expectation over what is sampled', async t => {
  const wanted = sdftCase('full_logits', 1).gradient_of_sum_wrt_student_logits;
  const vocabulary = student[0][0].map((_, token) => token);
  const found = vocabulary.map(token =>
    reverseGradient(sdft.completion_ids.map(row => row.map(() => token))),
  );
  student.forEach((rows, i) => {
    const expected = rows.map((lps, k) =>
      vocabulary
        .map(token => byLogits(Math.exp(lps[token]) * found[token][i][k], i, k, token))
        .reduce((total, row) => total.map((x, j) => x + row[j])),
    );
    t.ok(same(expected, wanted[i]), `gradient of completion ${i}`);
  });
});

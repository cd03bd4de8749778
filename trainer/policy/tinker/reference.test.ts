import t from 'tap';
import { lacksPython } from '../../../test/python.test-data.ts';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from '../../algorithms/losses/settings.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import { LossProgram } from '../learning/loss-program.ts';
import { settingsWith } from '../policies.test-data.ts';
import { lossRoute, preparedLoss } from './losses.ts';
import { TINKER_PROFILES } from './profiles.ts';
import { playTinker, referenceServer, type ServerState, tinkerPolicy } from './tinker.test-data.ts';

/** Against a second implementation of wire and losses, which reads and writes the SDK's own messages. */
const skip =
  lacksPython('tinker', 'numpy') && `${lacksPython('tinker', 'numpy')}: pip install tinker==0.38.0 numpy`;

const off = { dualClip: 0, entropyCoefficient: 0 };
const kl = { ...DEFAULT_LOSS_SETTINGS.kl, coefficient: 0.2 };
const token = { aggregation: 'token_mean' as const };

/** Each row of the table of losses, and whether the server has the loss itself. */
const LOSSES: readonly (readonly [string, Partial<LossSettings>, boolean])[] = [
  ['ppo', { policy: 'ppo', ...off }, true],
  ['ppo, sequence means', { policy: 'ppo', ...off, aggregation: 'seq_mean_token_mean' }, true],
  ['ppo with dual clip', { policy: 'ppo', ...off, dualClip: 3 }, false],
  ['ppo with KL', { policy: 'ppo', ...off, kl }, false],
  ['ppo with reverse KL', { policy: 'ppo', ...off, kl: { ...kl, estimator: 'reverse' } }, false],
  ['cispo', { policy: 'cispo', ...off }, true],
  ['decoupled ppo', { policy: 'decoupled_ppo', ...off }, true],
  ['tis', { policy: 'ppo', ...off, offPolicy: { kind: 'tis', cap: 1.1 } }, true],
  ['sequence tis', { policy: 'ppo', ...off, offPolicy: { kind: 'sequence_tis', cap: 1.1 } }, true],
  ['icepop', { policy: 'ppo', ...off, offPolicy: { kind: 'icepop', low: 0.9, high: 1.1 } }, true],
  [
    'geometric mask',
    { policy: 'ppo', ...off, offPolicy: { kind: 'geometric_mask', low: 0.9, high: 1.1 } },
    true,
  ],
  ['gspo', { policy: 'gspo', ...off, aggregation: 'seq_mean_token_mean' }, false],
  ['dpo', { policy: 'dpo', ...off, aggregation: 'seq_mean_token_sum' }, false],
  ['dppo', { policy: 'dppo', ...off, ...token }, false],
  ['ipo', { policy: 'ipo', ...off, ...token }, false],
  ['sapo', { policy: 'sapo', ...off, aggregation: 'seq_mean_token_mean' }, false],
  ['gmpo', { policy: 'gmpo', ...off, aggregation: 'seq_mean_token_mean' }, false],
  ['clip_cov', { policy: 'clip_cov', ...off, ...token }, false],
  ['kl_cov', { policy: 'kl_cov', ...off, ...token }, false],
  ['dro', { policy: 'dro', ...off, ...token, dro: { beta: 0.3 } }, false],
  ['cross_entropy', { policy: 'cross_entropy', ...off }, true],
  [
    'cross_entropy, sequence means',
    { policy: 'cross_entropy', ...off, aggregation: 'seq_mean_token_mean' },
    true,
  ],
];

for (const server of ['ragen', 'skyrl-jax'] as const) {
  t.test(`every loss has the gradient of the trainer's own at a server like ${server}`, { skip }, async t => {
    const { state, url } = await referenceServer(t, t.testdir(), ...(server === 'skyrl-jax' ? ['mean'] : []));
    const policy = await tinkerPolicy(t, url, { server });
    const sequences = await playTinker(policy, 6);
    // The model moves away from the one that sampled, so that ratios are not 1.
    const first = settingsWith({ policy: 'cross_entropy', ...off }, { learningRate: 0.05, clipNorm: 0 });
    await policy.update({ sequences }, first);
    for (const [name, loss, isNative] of LOSSES) {
      const settings = settingsWith(loss, { learningRate: 0, clipNorm: 0, weightDecay: 0 });
      const metrics = await policy.update({ sequences }, settings);
      const { gradient, found, metrics: logged } = await expected(await state(), sequences, settings.loss);
      const size = Math.hypot(...gradient);
      const distance = Math.hypot(...gradient.map((x, i) => x - found[i]));
      t.ok(size > 1e-4 && distance <= 1e-5 * size, `${name}: off by ${distance / size} of ${size}`);
      t.ok(Math.abs(metrics['actor/grad_norm'] - size) <= 1e-5 * size, `${name}: grad_norm`);
      for (const [metric, value] of Object.entries(logged))
        t.ok(Math.abs(metrics[metric] - value) <= 1e-5 * Math.max(1, Math.abs(value)), `${name}: ${metric}`);
      const route = lossRoute(preparedLoss(sequences, settings.loss), TINKER_PROFILES[server]);
      const isExact = isNative && !(server === 'skyrl-jax' && loss.policy === 'cross_entropy');
      t.equal(route !== undefined, isExact, `${name}: route`);
    }
  });
}

/** Gradient of B and metrics, computed here from the server's weights by our own loss and the derivative of a softmax. */
async function expected(
  { models, base, a }: ServerState,
  sequences: readonly TrainingSequence[],
  loss: LossSettings,
) {
  const { b, last } = Object.values(models).at(-1)!;
  const scores = sequences.map(({ tokenIds }) =>
    Array.from(tokenIds.subarray(0, -1), previous => {
      const logits = base[previous].map(
        (x, v) => x + a[previous].reduce((sum, y, r) => sum + y * b[r][v], 0),
      );
      const total = Math.log(logits.reduce((sum, x) => sum + Math.exp(x), 0));
      return logits.map(x => x - total);
    }),
  );
  const logProbs = sequences.map(({ tokenIds }, i) =>
    Float32Array.from(tokenIds, (id, t) => (t === 0 ? 0 : scores[i][t - 1][id])),
  );
  const program = new LossProgram();
  const { gradients, metrics } = await program.run(preparedLoss(sequences, loss), logProbs);
  await program.close();
  const gradient = b.map(row => row.map(() => 0));
  sequences.forEach(({ tokenIds }, i) => {
    for (let t = 1; t < tokenIds.length; t++) {
      const slope = gradients[i][t];
      scores[i][t - 1].forEach((score, v) => {
        const change = slope * ((v === tokenIds[t] ? 1 : 0) - Math.exp(score));
        gradient.forEach((row, r) => {
          row[v] += a[tokenIds[t - 1]][r] * change;
        });
      });
    }
  });
  return { gradient: gradient.flat(), found: last.flat(), metrics };
}

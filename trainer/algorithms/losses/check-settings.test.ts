import t from 'tap';
import { checkLossSettings } from './check-settings.ts';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from './settings.ts';

const refuse = (change: Partial<LossSettings>, message: string | RegExp) =>
  t.throws(() => checkLossSettings({ ...DEFAULT_LOSS_SETTINGS, ...change }), { message });

t.test('the defaults are valid', async t => {
  t.doesNotThrow(() => checkLossSettings(DEFAULT_LOSS_SETTINGS));
});

t.test('unknown names are refused with the valid ones', async () => {
  refuse(
    { policy: 'pp0' },
    'loss.policy is "pp0"; choose one of ppo, gspo, cispo, decoupled_ppo, cross_entropy',
  );
  refuse({ aggregation: 'mean' as 'token_mean' }, /choose one of token_mean, seq_mean_token_mean/);
  refuse({ kl: { estimator: 'k4' as 'k3', coefficient: 0 } }, /choose one of k1, k2, k3, abs/);
});

t.test('numbers out of range are refused with the range', async () => {
  refuse({ clipLow: 1 }, 'loss.clip_low is 1; it must be below 1');
  refuse({ clipHigh: -0.1 }, 'loss.clip_high is -0.1; it must be at least 0');
  refuse({ dualClip: 0.5 }, 'loss.dual_clip is 0.5; it must be above 1, or 0 to turn it off');
  refuse({ entropyCoefficient: Number.NaN }, 'loss.entropy_coefficient is NaN; it must be at least 0');
  refuse({ offPolicy: { kind: 'tis', cap: 0 } }, 'loss.off_policy.cap is 0; it must be above 0 (2 is usual)');
  refuse(
    { offPolicy: { kind: 'icepop', low: 2, high: 1 } },
    'loss.off_policy.low … high is 2 … 1; it must be 0 ≤ low < high',
  );
});

t.test('combinations without meaning are refused with the reason', async () => {
  refuse({ policy: 'gspo' }, /one ratio per sequence and weighs sequences alike: use seq_mean_token_mean$/);
  refuse({ aggregation: 'dr_grpo', maxResponseLength: 0 }, /aggregation dr_grpo divides by it/);
  refuse(
    { policy: 'cross_entropy', offPolicy: { kind: 'tis', cap: 2 } },
    /has no behavior policy: use none$/,
  );
});

import Type from 'typebox';
import { choice, count, flag, notNegative, orNull, positive, section, share, strict } from './schema.ts';

/** Measurements that change nothing in the run but the time it takes. */
export const DiagnosticsSettings = Type.Object(
  {
    /** Measures if the reasoning depends on the prompt; for policies that do not think (`rollout.think`), if the actions do. */
    collapse: Type.Object(
      {
        /** The first iteration is measured, and then every so many; 0 none. */
        every: count(5),
        /** Samples of a series that are compared, each under every prompt; `all` takes every one. */
        samples: Type.Union([Type.Integer({ minimum: 2 }), Type.Literal('all')], { default: 64 }),
        /** Tokens that a measurement puts through the model at most: fewer samples are taken where there would be more. */
        max_tokens: positive(1_000_000),
        /** Added to a standard deviation before z-scores divide by it. */
        std_eps: Type.Number({ exclusiveMinimum: 0, default: 1e-3 }),
        /** Decay of the moving average of that standard deviation. */
        ema_decay: share(0.9),
        /** Thresholds of high entropy (nats per token) and high information (share of log N); null: half the median of the run's first three measurements. */
        thresholds: orNull(Type.Object({ entropy: notNegative(0.1), mi_share: share(0.1) }, strict)),
      },
      section,
    ),
    /** Gradients of task, entropy and KL apart, for groups of little and much spread. */
    gradients: Type.Object(
      {
        /** The first iteration is measured, and then each so many later; 0 none. Costs about as much as an update. */
        every: count(0),
        /** Buckets that groups are sorted into; fewer where there are fewer groups. */
        buckets: positive(6),
        /** `quantile`: of equal numbers of groups; `fixed_rv`: with borders at standard deviations of 0, 1, 2, …. */
        bucket_mode: choice(['quantile', 'fixed_rv'], 'quantile'),
        /** Measured before the filter too, as `grad_norm_prefilter/…`. */
        prefilter: flag(true),
        /** Most groups with a separate gradient for the signal-to-noise ratio; 0: none. */
        snr_groups: count(16),
      },
      section,
    ),
  },
  section,
);

import Type, { type Static } from 'typebox';
import { choice, orNull, positive, section, strict } from './schema.ts';

/** The course of one coefficient over the iterations, in place of its setting. */
export const CoefficientSchedule = Type.Object(
  {
    /** Form of the change; `steps` takes the last of `values` that has begun. */
    kind: choice(['linear', 'cosine', 'steps'], 'linear'),
    /** Value before `begin`. */
    from: Type.Number({ minimum: 0, default: 0 }),
    /** Value after `end`. */
    to: Type.Number({ minimum: 0, default: 0 }),
    /** First iteration of the change, counted from 1. */
    begin: positive(1),
    /** Last iteration of the change; null: the last of the run. */
    end: orNull(Type.Integer({ minimum: 1 })),
    /** For `steps`: values with their first iterations. */
    values: Type.Array(Type.Object({ from_step: positive(1), value: Type.Number({ minimum: 0 }) }, strict), {
      default: [],
    }),
  },
  strict,
);
export type CoefficientSchedule = Static<typeof CoefficientSchedule>;

/** Coefficients of the loss that change as the run continues; null: as their settings say. */
export const SchedulesSettings = Type.Object(
  {
    /** Schedule of `loss.entropy_coefficient`. */
    entropy_coefficient: orNull(CoefficientSchedule),
    /** Schedule of `loss.kl.coefficient`. */
    kl_coefficient: orNull(CoefficientSchedule),
    /** Schedule of `algorithm.kl_in_reward.coefficient`. */
    kl_in_reward_coefficient: orNull(CoefficientSchedule),
    /** Schedule of `loss.clip_low`. */
    clip_low: orNull(CoefficientSchedule),
    /** Schedule of `loss.clip_high`. */
    clip_high: orNull(CoefficientSchedule),
  },
  section,
);

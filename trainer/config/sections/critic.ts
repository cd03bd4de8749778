import Type, { type Static } from 'typebox';
import { notNegative, orNull, strict } from './schema.ts';

/** A separate model that estimates values, in place of a head on the policy's trunk. */
export const CriticSection = Type.Object(
  {
    /** Folder of the model it begins as; null: as the policy, when its own training begins. */
    init: orNull(Type.String({ minLength: 1 })),
    /** Highest learning rate; the schedule and all else of `optimizer` is the policy's. */
    learning_rate: notNegative(1e-5),
  },
  strict,
);
export type CriticSection = Static<typeof CriticSection>;

import type { Static } from 'typebox';
import { Type } from '../../shared/schema/type.ts';
import { type Wrapper, withReward } from './layer.ts';

const optionsSchema = Type.Object(
  {
    penalty: Type.Number({ default: 0.01, minimum: 0, maximum: 1e6, description: 'What every step costs.' }),
  },
  { additionalProperties: false },
);
type Options = Static<typeof optionsSchema>;

export const stepPenalty: Wrapper = {
  name: 'step_penalty',
  title: 'Takes something off the reward of every step.',
  optionsSchema,
  wrap(environment, options) {
    const { penalty } = options as Options;
    return withReward(environment, reward => reward - penalty);
  },
};

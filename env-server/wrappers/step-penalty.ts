import type { Static } from 'typebox';
import { closed } from '../../shared/schema/type.ts';
import { numberSetting } from '../environments/core/setting-fields.ts';
import { type Wrapper, withReward } from './layer.ts';

const optionsSchema = closed({
  penalty: numberSetting(0.01, [0, 1e6], 'Subtracted from the reward of every step.'),
});
type Options = Static<typeof optionsSchema>;

export const stepPenalty: Wrapper = {
  name: 'step_penalty',
  title: 'Subtracts a penalty from the reward of every step.',
  optionsSchema,
  wrap(environment, options) {
    const { penalty } = options as Options;
    return withReward(environment, reward => reward - penalty);
  },
};

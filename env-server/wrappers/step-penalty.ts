import { closed } from '../../shared/schema/type.ts';
import { numberSetting } from '../environments/core/settings.ts';
import { withReward, wrapper } from './layer.ts';

export const stepPenalty = wrapper({
  name: 'step_penalty',
  title: 'Subtracts a penalty from the reward of every step.',
  optionsSchema: closed({
    penalty: numberSetting(0.01, [0, 1e6], 'Subtracted from the reward of every step.'),
  }),
  wrap(environment, { penalty }) {
    return withReward(environment, reward => reward - penalty);
  },
});

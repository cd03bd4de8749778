import { closed, Type } from '../../shared/schema/type.ts';
import { UnfitWrapper, withReward, wrapper } from './layer.ts';

export const rewardClip = wrapper({
  name: 'reward_clip',
  title: 'Limits every reward to a range.',
  optionsSchema: closed({
    min: Type.Number({ default: -1, description: 'Smallest reward of a step.' }),
    max: Type.Number({ default: 1, description: 'Largest reward of a step.' }),
  }),
  wrap(environment, { min, max }) {
    if (min > max) throw new UnfitWrapper('/max', `max ${max} is smaller than min ${min}`);
    return withReward(environment, reward => Math.min(max, Math.max(min, reward)));
  },
});

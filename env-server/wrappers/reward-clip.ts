import type { Static } from 'typebox';
import { closed, Type } from '../../shared/schema/type.ts';
import { UnfitWrapper, type Wrapper, withReward } from './layer.ts';

const optionsSchema = closed({
  min: Type.Number({ default: -1, description: 'Smallest reward of a step.' }),
  max: Type.Number({ default: 1, description: 'Largest reward of a step.' }),
});
type Options = Static<typeof optionsSchema>;

export const rewardClip: Wrapper = {
  name: 'reward_clip',
  title: 'Limits every reward to a range.',
  optionsSchema,
  wrap(environment, options) {
    const { min, max } = options as Options;
    if (min > max) throw new UnfitWrapper('/max', `max ${max} is smaller than min ${min}`);
    return withReward(environment, reward => Math.min(max, Math.max(min, reward)));
  },
};

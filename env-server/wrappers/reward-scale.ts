import type { Static } from 'typebox';
import { closed, Type } from '../../shared/schema/type.ts';
import { type Wrapper, withReward } from './layer.ts';

const optionsSchema = closed({
  factor: Type.Number({ minimum: -1e6, maximum: 1e6, description: 'Factor.' }),
});
type Options = Static<typeof optionsSchema>;

export const rewardScale: Wrapper = {
  name: 'reward_scale',
  title: 'Multiplies every reward, and its named parts, by a factor.',
  optionsSchema,
  wrap(environment, options) {
    const { factor } = options as Options;
    return withReward(environment, reward => (factor === 0 ? 0 : reward * factor), true);
  },
};

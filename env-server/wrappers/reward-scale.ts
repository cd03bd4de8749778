import { closed, Type } from '../../shared/schema/type.ts';
import { withReward, wrapper } from './layer.ts';

export const rewardScale = wrapper({
  name: 'reward_scale',
  title: 'Multiplies every reward, and its named parts, by a factor.',
  optionsSchema: closed({
    factor: Type.Number({ minimum: -1e6, maximum: 1e6, description: 'Factor.' }),
  }),
  wrap(environment, { factor }) {
    return withReward(environment, reward => (factor === 0 ? 0 : reward * factor), true);
  },
});

import t from 'tap';
import { policyLoss } from './registry.ts';

t.test('an unknown loss is refused with the valid names', async t => {
  t.throws(() => policyLoss('trpo'), {
    message: 'loss.policy is "trpo"; choose one of ppo, gspo, cispo, decoupled_ppo, cross_entropy, dpo',
  });
});

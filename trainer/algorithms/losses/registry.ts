import { cispoLoss } from './cispo.ts';
import { crossEntropyLoss } from './cross-entropy.ts';
import { gspoLoss } from './gspo.ts';
import type { PolicyLossFunction } from './policy-loss.ts';
import { ppoLoss } from './ppo.ts';
import { POLICY_LOSSES, type PolicyLossName } from './settings.ts';

/** `decoupled_ppo` is PPO around π_prox; the weight π_prox / π_behave comes with the loss inputs. */
const LOSSES: Readonly<Record<PolicyLossName, PolicyLossFunction>> = {
  ppo: ppoLoss,
  gspo: gspoLoss,
  cispo: cispoLoss,
  decoupled_ppo: ppoLoss,
  cross_entropy: crossEntropyLoss,
};

/** @throws RangeError listing the valid names. */
export function policyLoss(name: string): PolicyLossFunction {
  if (!Object.hasOwn(LOSSES, name)) {
    throw new RangeError(`no policy loss "${name}"; choose one of ${POLICY_LOSSES.join(', ')}`);
  }
  return LOSSES[name as PolicyLossName];
}

import { clipCov, klCov } from './covariance.ts';
import { crossEntropy, dpo } from './likelihood.ts';
import type { PolicyLoss } from './policy-loss.ts';
import { cispo, decoupledPpo, gspo, ppo } from './ppo.ts';
import { dppo, dro, gmpo, ipo, sapo } from './trust-regions.ts';

/** Every policy loss; a new one is a line here. */
const LOSSES: readonly PolicyLoss[] = [
  ppo,
  gspo,
  cispo,
  decoupledPpo,
  crossEntropy,
  dpo,
  dppo,
  ipo,
  sapo,
  gmpo,
  clipCov,
  klCov,
  dro,
];

const BY_NAME: ReadonlyMap<string, PolicyLoss> = new Map(LOSSES.map(loss => [loss.name, loss]));

/** Values of the setting `loss.policy`. */
export const POLICY_LOSSES: readonly string[] = [...BY_NAME.keys()];

/** @throws RangeError listing the valid names. */
export function policyLoss(name: string): PolicyLoss {
  const loss = BY_NAME.get(name);
  if (loss === undefined) {
    throw new RangeError(`loss.policy is "${name}"; choose one of ${POLICY_LOSSES.join(', ')}`);
  }
  return loss;
}

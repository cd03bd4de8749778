import { cispo } from './cispo.ts';
import { clipCov } from './covariance/clip-cov.ts';
import { klCov } from './covariance/kl-cov.ts';
import { crossEntropy } from './cross-entropy.ts';
import { dpo } from './dpo.ts';
import { gspo } from './gspo.ts';
import type { PolicyLoss } from './policy-loss.ts';
import { decoupledPpo, ppo } from './ppo.ts';
import { dppo } from './trust-regions/dppo.ts';
import { dro } from './trust-regions/dro.ts';
import { gmpo } from './trust-regions/gmpo.ts';
import { ipo } from './trust-regions/ipo.ts';
import { sapo } from './trust-regions/sapo.ts';

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

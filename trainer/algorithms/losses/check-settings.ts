import type { PolicyLoss } from './policy-loss.ts';
import { policyLoss } from './registry.ts';
import {
  AGGREGATIONS,
  ANCHORS,
  atLeast,
  LOSS_KL_ESTIMATORS,
  type LossSettings,
  OFF_POLICY_KINDS,
  type OffPolicySettings,
} from './settings.ts';

/**
 * Rejects settings without a meaning, or that contradict each other.
 * @throws RangeError naming the setting as configs spell it, what is wrong with it and what would be right
 */
export function checkLossSettings(settings: LossSettings): void {
  const loss = policyLoss(settings.policy);
  choose('loss.aggregation', settings.aggregation, AGGREGATIONS);
  choose('loss.kl.estimator', settings.kl.estimator, LOSS_KL_ESTIMATORS);
  choose('loss.anchor', settings.anchor, ANCHORS);
  choose('loss.off_policy.kind', settings.offPolicy.kind, OFF_POLICY_KINDS);
  atLeast('loss.clip_low', settings.clipLow, 0);
  atLeast('loss.clip_high', settings.clipHigh, 0);
  atLeast('loss.entropy_coefficient', settings.entropyCoefficient, 0);
  atLeast('loss.kl.coefficient', settings.kl.coefficient, 0);
  atLeast('loss.value_coefficient', settings.value.coefficient, 0);
  atLeast('loss.value_clip', settings.value.clip, 0);
  // A weight may be clipped at 0 and keep its meaning; a ratio may not.
  if (settings.clipLow > 1 || (settings.clipLow === 1 && loss.name !== 'cispo')) {
    throw new RangeError(`loss.clip_low is ${settings.clipLow}; it must be below 1`);
  }
  if (settings.dualClip !== 0 && !(settings.dualClip > 1)) {
    throw new RangeError(`loss.dual_clip is ${settings.dualClip}; it must be above 1, or 0 to turn it off`);
  }
  if (settings.aggregation === 'dr_grpo' && !(settings.maxResponseLength >= 1)) {
    throw new RangeError(
      `loss.max_response_length is ${settings.maxResponseLength}; aggregation dr_grpo divides by it, so it must be at least 1`,
    );
  }
  loss.check?.(settings);
  checkOffPolicy(loss, settings.offPolicy);
  checkAnchor(loss, settings);
}

function checkAnchor({ name, kind, needsProximal }: PolicyLoss, { anchor, offPolicy }: LossSettings): void {
  if (anchor === 'auto') return;
  if (kind !== 'ratio') {
    throw new RangeError(`loss.anchor is ${anchor}, but ${name} has no ratio: use auto`);
  }
  if (anchor === 'old') return;
  if (needsProximal === true) {
    throw new RangeError(
      `loss.anchor is rollout, but ${name} is defined around the old policy: use old or auto`,
    );
  }
  if (offPolicy.kind !== 'none') {
    throw new RangeError(
      `loss.anchor is rollout, and loss.off_policy.kind ${offPolicy.kind} corrects for the rollout again: use one of them`,
    );
  }
}

function checkOffPolicy({ name, kind }: PolicyLoss, offPolicy: OffPolicySettings): void {
  if (offPolicy.kind === 'none') return;
  if (kind !== 'ratio') {
    throw new RangeError(
      `loss.off_policy.kind is ${offPolicy.kind}, but ${name} learns from given tokens and has no behavior policy: use none`,
    );
  }
  if (offPolicy.kind === 'tis' || offPolicy.kind === 'sequence_tis') {
    if (!(offPolicy.cap > 0)) {
      throw new RangeError(`loss.off_policy.cap is ${offPolicy.cap}; it must be above 0 (2 is usual)`);
    }
    return;
  }
  if (!(offPolicy.low >= 0 && offPolicy.low < offPolicy.high)) {
    throw new RangeError(
      `loss.off_policy.low … high is ${offPolicy.low} … ${offPolicy.high}; it must be 0 ≤ low < high`,
    );
  }
}

function choose(name: string, value: string, choices: readonly string[]): void {
  if (!choices.includes(value)) {
    throw new RangeError(`${name} is "${value}"; choose one of ${choices.join(', ')}`);
  }
}

import { ADVANTAGES, advantageEstimator } from '../algorithms/advantages/registry.ts';
import { policyLoss } from '../algorithms/losses/registry.ts';
import {
  hasCrossEntropy,
  hasKlInReward,
  hasKlLoss,
  hasPreferenceLoss,
  isSelfDistilled,
  monitorSettings,
  needsReference,
} from './derived.ts';
import type { SettingConflict } from './sections/schema.ts';
import type { RunSettings } from './settings.ts';

/** Conflicts about copies kept next to the weights that learn: their average, and the reference. */
export function weightClashes(settings: RunSettings): SettingConflict[] {
  const { optimizer, rollout, generation, policy } = settings;
  const found: SettingConflict[] = [];
  if (optimizer.ema?.validate && (rollout.asynchronous || generation.engine !== 'local')) {
    const why = rollout.asynchronous
      ? 'rollout.asynchronous samples with the weights that learn at the same time'
      : `${generation.engine} has the weights that learn`;
    found.push({
      key: 'optimizer.ema',
      message: `validates the average of the weights, but ${why}: set optimizer.ema.validate to false`,
    });
  }
  if (policy.reference_refresh_every !== null) {
    const key = 'policy.reference_refresh_every';
    if (!needsReference(settings))
      found.push({
        key,
        message: 'refreshes a reference that nothing asks for: give a KL term a coefficient',
      });
    if (!hasOwnReference(policy))
      found.push({
        key,
        message:
          'refreshes the reference, but policy.reference or policy.reference_endpoint names one that stays: use one',
      });
  }
  if (policy.reference_endpoint) {
    const key = 'policy.reference_endpoint';
    const add = (message: string) => found.push({ key, message });
    if (!needsReference(settings))
      add('names a reference that nothing asks for: give a KL term a coefficient');
    if (policy.reference !== null) add('stands next to policy.reference, which names one, too: use one');
    if (rollout.temperature !== 1)
      add(`scores at temperature 1, but rollout.temperature is ${rollout.temperature}: use 1`);
    if (rollout.constrained) add('does not know the grammar of rollout.constrained: set that to false');
  }
  return found;
}

/** True if the reference is the policy itself, as it was. */
export function hasOwnReference({ reference, reference_endpoint }: RunSettings['policy']): boolean {
  return reference === null && reference_endpoint === null;
}

/** A monitored metric that no validation has would end the run at its first one. */
export function monitorClashes(settings: RunSettings): SettingConflict[] {
  if (!monitorSettings(settings)) return [];
  const { metric } = settings.training.monitor;
  const [, first, ...rest] = metric.split('/');
  const sets = Object.keys(settings.validation.sets);
  const groups = [...(settings.validation.tags ?? settings.train_tags), ...sets];
  const isThere = rest.length === 0 ? ['success', 'return'].includes(first) : groups.includes(first);
  if (isThere) return [];
  const valid = ['success', 'return', ...groups.map(name => `${name}/…`)].map(name => `val-env/${name}`);
  return [
    {
      key: 'training.monitor.metric',
      message: `no validation has ${metric}; there are ${valid.join(', ')}`,
    },
  ];
}

/** Terms of the loss that would have nothing to learn from, or that would be learned for nothing. */
export function streamClashes(settings: RunSettings): SettingConflict[] {
  const { algorithm, loss, rollout, diagnostics } = settings;
  const steps = Math.ceil((rollout.env_groups * rollout.group_size) / algorithm.mini_batch_size);
  const { perSequence = false } = advantageEstimator(algorithm.advantage);
  const clashes: readonly (readonly [boolean, string, string])[] = [
    [
      loss.cross_entropy.observations > 0 && rollout.context_mode === 'single_turn',
      'loss.cross_entropy',
      'weighs what the environment writes after a response, which no sequence of rollout.context_mode single_turn has: use full',
    ],
    [
      hasCrossEntropy(loss) && hasPreferenceLoss(settings),
      'loss.cross_entropy',
      `is a separate term, and ${loss.policy} is averaged over pairs: set its weights to 0`,
    ],
    [
      hasCrossEntropy(loss) && diagnostics.gradients.every > 0,
      'diagnostics.gradients',
      'takes no gradient of the cross-entropy apart: use every: 0, or set the weights of loss.cross_entropy to 0',
    ],
    [
      loss.policy === 'kl_cov' && algorithm.ppo_epochs * steps === 1 && rollout.asynchronous === null,
      'loss.policy',
      'is kl_cov, with a penalty of |log ratio| that has no gradient at the first step, and an iteration has one step: use a smaller algorithm.mini_batch_size or more ppo_epochs',
    ],
    [
      policyLoss(loss.policy).sequenceLevel === true && (!perSequence || hasKlInReward(settings)),
      'algorithm.advantage',
      `${algorithm.advantage} may differ from token to token, and ${loss.policy} takes one advantage per sequence: choose ${perSequenceNames()}${hasKlInReward(settings) ? ', and loss.kl in place of algorithm.kl_in_reward' : ''}`,
    ],
    [
      isSelfDistilled(settings) && !hasKlLoss(settings),
      'loss.kl',
      'shows demonstrations to a reference that nothing compares with: give it a coefficient, 1 for estimator reverse',
    ],
    [
      isSelfDistilled(settings) && (!hasOwnReference(settings.policy) || needsReference(settings)),
      'loss.kl.demonstration',
      'makes the policy its own reference, and another one is named or needed: leave policy.reference and policy.reference_endpoint null, and use no other term with a reference',
    ],
    [
      isSelfDistilled(settings) && rollout.group_size < 2,
      'loss.kl.demonstration',
      `shows another episode of the group, but rollout.group_size is ${rollout.group_size}: use at least 2`,
    ],
    [
      algorithm.advantage === 'iw_opd' && hasOwnReference(settings.policy),
      'policy.reference',
      'is null, and iw_opd learns from the reference alone: a checkpoint folder there, or policy.reference_endpoint, names the teacher',
    ],
    [
      algorithm.advantage === 'gdpo' && Object.keys(algorithm.reward_components ?? {}).length === 0,
      'algorithm.reward_components',
      'is empty, and gdpo compares components: name some, e.g. {reward: 1, format_penalty: 1}',
    ],
    [
      algorithm.reward_components !== null &&
        algorithm.reward_normalization.method !== 'identity' &&
        algorithm.advantage === 'gdpo',
      'algorithm.reward_normalization',
      'normalizes the sum of the rewards, and gdpo normalizes each component by itself: use identity',
    ],
  ];
  return clashes.flatMap(([on, key, message]) => (on ? [{ key, message }] : []));
}

function perSequenceNames(): string {
  return ADVANTAGES.filter(name => advantageEstimator(name).perSequence).join(', ');
}

/** Pairs are made of whole episodes of a group. */
export function preferenceClashes(settings: RunSettings): SettingConflict[] {
  const { algorithm, loss, rollout, diagnostics } = settings;
  if (!hasPreferenceLoss(settings)) return [];
  const { filter } = algorithm;
  const clashes: readonly (readonly [boolean, string, string])[] = [
    [rollout.group_size < 2, 'rollout.group_size', 'is 1, and a pair takes two: use at least 2'],
    [rollout.context_mode !== 'full', 'rollout.context_mode', 'cuts episodes, and pairs are whole: use full'],
    [
      algorithm.mini_batch_size < 2,
      'algorithm.mini_batch_size',
      'is 1, and a pair takes two: use at least 2',
    ],
    [algorithm.train_on !== 'all', 'algorithm.train_on', 'leaves out what pairs are made of: use all'],
    [algorithm.overlong_mask, 'algorithm.overlong_mask', 'would part pairs: use false'],
    [
      filter.fill !== 'none' && filter.fill !== 'refill',
      'algorithm.filter.fill',
      `is ${filter.fill}, which would part pairs: use none or refill`,
    ],
    [
      filter.loss_scaling !== 'none',
      'algorithm.filter.loss_scaling',
      'scales advantages, which pairs have none of: use none',
    ],
    [
      hasKlInReward(settings),
      'algorithm.kl_in_reward',
      'has no part in returns, by which pairs are chosen: use 0',
    ],
    [loss.entropy_coefficient > 0, 'loss.entropy_coefficient', 'has no term in a preference loss: use 0'],
    [
      diagnostics.gradients.every > 0,
      'diagnostics.gradients',
      'tells apart parts of a loss that dpo does not have: use every: 0',
    ],
  ];
  return clashes.flatMap(([on, key, why]) =>
    on ? [{ key, message: `${why} (loss.policy is ${loss.policy})` }] : [],
  );
}

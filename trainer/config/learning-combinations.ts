import { hasKlInReward, hasPreferenceLoss, monitorSettings, needsReference } from './derived.ts';
import type { SettingConflict } from './setting-conflict.ts';
import type { RunSettings } from './settings.ts';

/** Of what is kept next to the weights that learn: their average, and the reference. */
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

/** Whether the reference is the policy itself, as it was. */
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

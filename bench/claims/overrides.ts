const MINUTE = 60;

/** Settings for runs of one length: at most `steps` iterations and `minutes` minutes. */
export const within = (steps: number, minutes: number): string[] => [
  `training.steps=${steps}`,
  `training.max_seconds=${minutes * MINUTE}`,
];

export const EVERY_SEED_ONE_TEST = 'seeds.validation=123';

/** From the warm start of the same seed, 32 groups of 8. */
export const FROM_WARM = [
  'policy.init={folder}/warm-seed-{seed}/checkpoints/step-000000/policy',
  'warm_start=null',
  EVERY_SEED_ONE_TEST,
  'rollout.env_groups=32',
  'rollout.group_size=8',
];

export const FILTER = [
  'algorithm.filter.strategy=top_p',
  'algorithm.filter.value=0.9',
  'algorithm.filter.include_zero=false',
];
export const NO_FILTER = ['algorithm.filter.strategy=none', 'algorithm.filter.include_zero=true'];
export const CRITIC_FREE = ['optimizer.learning_rate=2e-4', 'loss.entropy_coefficient=0.001'];

const settingOf = (override: string) => override.slice(0, override.indexOf('='));

/** Overrides with further ones in place of those of the same settings. */
export function replaceOverrides(overrides: readonly string[], own: readonly string[]): string[] {
  const replaced = new Set(own.map(settingOf));
  return [...overrides.filter(text => !replaced.has(settingOf(text))), ...own];
}

import { availableParallelism } from 'node:os';
import {
  ConfigError,
  loadConfig,
  overrideConfig,
  parseOverride,
  validateConfig,
} from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';
import { checkAdvantage } from '../algorithms/advantages/registry.ts';
import { checkFilterSettings } from '../algorithms/filters/settings.ts';
import { RunSettings } from './settings.ts';
import { filterSettings } from './settings-derived.ts';

/**
 * The settings of a config file with overrides from the command line, checked in every way that needs no server.
 * @throws ConfigError naming keys, places and valid choices
 */
export function loadRunSettings(file: string, overrides: readonly string[] = []): RunSettings {
  const loaded = loadConfig(file, { schema: RunSettings, overrides });
  const workers = loaded.policy.workers ?? availableParallelism();
  const settings = { ...loaded, policy: { ...loaded.policy, workers } };
  checkRunSettings(settings, file);
  return settings;
}

/** What may differ when a run goes on; all else is what the run is. */
const RESUMABLE = ['servers', 'training', 'tracking'];

/**
 * The settings of a run that is resumed with overrides.
 * @throws ConfigError for an override of what cannot change any more
 */
export function resumedSettings(
  settings: RunSettings,
  overrides: readonly string[],
  where: string,
): RunSettings {
  const fixed = overrides.filter(override => {
    const key = parseOverride(override).path.join('.');
    return !RESUMABLE.some(open => key === open || key.startsWith(`${open}.`));
  });
  if (fixed.length > 0) {
    throw new ConfigError(
      fixed.map(override => ({
        key: parseOverride(override).path.join('.'),
        where: `command line (${override})`,
        message: `cannot change when a run is resumed; what can: ${RESUMABLE.join(', ')}`,
      })),
    );
  }
  return overriddenSettings(settings, overrides, where);
}

/**
 * Settings with overrides from the command line, checked as a whole.
 * @throws ConfigError
 */
export function overriddenSettings(
  settings: RunSettings,
  overrides: readonly string[],
  where: string,
): RunSettings {
  const origins = new Map<string, string>();
  const value = overrideConfig(settings as Json, overrides, origins);
  const changed = validateConfig(value, RunSettings, key => origins.get(key) ?? where);
  checkRunSettings(changed, where);
  return changed;
}

/**
 * What the schema cannot say: names that must exist, sums that must match, parts that exclude each other.
 * @throws ConfigError
 */
export function checkRunSettings(settings: RunSettings, where: string): void {
  const problems: { key: string; where: string; message: string }[] = [];
  const add = (key: string, message: string) => problems.push({ key, where, message });
  const known = Object.keys(settings.tags);
  const tagsOf = (key: string, names: readonly string[]) => {
    for (const name of names) {
      if (!known.includes(name))
        add(key, `no tag is named ${name}; defined under \`tags\`: ${known.join(', ') || 'none'}`);
    }
  };
  tagsOf('train_tags', settings.train_tags);
  tagsOf('validation.tags', settings.validation.tags ?? []);
  const { env_groups, group_size, n_groups } = settings.rollout;
  const named = Object.keys(n_groups);
  if (named.length > 0) {
    for (const name of named) {
      if (!settings.train_tags.includes(name)) add('rollout.n_groups', `${name} is not among train_tags`);
    }
    for (const name of settings.train_tags) {
      if (!named.includes(name)) add('rollout.n_groups', `gives ${name} of train_tags no groups`);
    }
    const sum = Object.values(n_groups).reduce((a, b) => a + b, 0);
    if (sum !== env_groups) add('rollout.n_groups', `sums to ${sum}, but env_groups is ${env_groups}`);
  } else if (env_groups < settings.train_tags.length) {
    add('rollout.env_groups', `${env_groups} groups cannot serve ${settings.train_tags.length} tags`);
  }
  const { advantage, mini_batch_size } = settings.algorithm;
  const refused = (key: string, check: () => void) => {
    try {
      check();
    } catch (error) {
      add(key, (error as Error).message);
    }
  };
  refused('algorithm.advantage', () =>
    checkAdvantage(advantage, {
      valueHead: settings.policy.value_head,
      groupSize: group_size,
      contextMode: settings.rollout.context_mode,
    }),
  );
  refused('algorithm.filter', () => checkFilterSettings(filterSettings(settings), group_size));
  if (mini_batch_size > env_groups * group_size) {
    add(
      'algorithm.mini_batch_size',
      `${mini_batch_size} is more than the ${env_groups * group_size} episodes of an iteration`,
    );
  }
  if (settings.policy.init === 'scratch' && settings.policy.hidden_size % settings.policy.heads !== 0) {
    add(
      'policy.heads',
      `must divide policy.hidden_size ${settings.policy.hidden_size}, got ${settings.policy.heads}`,
    );
  }
  if (settings.policy.init === 'scratch' && settings.rollout.prompt !== 'compact') {
    add(
      'rollout.prompt',
      'a policy from scratch has a tokenizer of a few words and needs `compact`; `chat` needs policy.init: <folder>',
    );
  }
  for (const { key, message } of overlappingSeeds(settings)) add(key, message);
  if (problems.length > 0) throw new ConfigError(problems);
}

/** Seeds of levels that two of training, validation and warm start would share. */
function overlappingSeeds(settings: RunSettings): { key: string; message: string }[] {
  const { rollout, training, validation, warm_start } = settings;
  const ranges = [
    { key: 'validation.seed', first: validation.seed, count: validation.episodes },
    { key: 'rollout.start_seed', first: rollout.start_seed, count: rollout.env_groups * training.steps },
    ...(warm_start
      ? [{ key: 'warm_start.start_seed', first: warm_start.start_seed, count: warm_start.episodes }]
      : []),
  ];
  return ranges.flatMap((a, i) =>
    ranges
      .slice(i + 1)
      .filter(b => a.first < b.first + b.count && b.first < a.first + a.count)
      .map(b => ({
        key: b.key,
        message: `its seeds ${b.first} to ${b.first + b.count - 1} overlap those of ${a.key}, ${a.first} to ${a.first + a.count - 1}`,
      })),
  );
}

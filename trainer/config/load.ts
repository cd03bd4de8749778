import { availableParallelism } from 'node:os';
import { basename, extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  ConfigError,
  loadConfig,
  overrideConfig,
  parseOverride,
  validateConfig,
} from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';
import { hasCredentials } from '../../shared/text.ts';
import { settingConflicts } from './combinations.ts';
import { levelSeeds, validationTags } from './derived.ts';
import { conflictsOf, type Rules, type SettingConflict } from './sections/schema.ts';
import { RunSettings } from './settings.ts';

/** Purpose of settings: to train a policy, or to play without one, in which case policy settings are not checked. */
export type SettingsPurpose = 'train' | 'play';

/** Algorithms by name: `recipe: grpo` in a config, `recipe=grpo` on the command line. */
export const RECIPES = {
  key: 'recipe',
  folder: fileURLToPath(new URL('../../configs/recipes/', import.meta.url)),
} as const;

/** The product's configs by name: `extends: ragen:base` in a config, `train ragen:quickstart` on the command line. */
const LIBRARY = {
  prefix: 'ragen:',
  folder: fileURLToPath(new URL('../../configs/', import.meta.url)),
} as const;

/** True for the name of one of the product's configs, false for a path. */
export const isLibraryConfig = (config: string): boolean => config.startsWith(LIBRARY.prefix);

/** Name of a config's runs, unless `run.name` sets one. */
export const configName = (config: string): string =>
  basename(config, extname(config)).slice(isLibraryConfig(config) ? LIBRARY.prefix.length : 0);

/**
 * The settings of a config file with overrides from the command line, with every check that needs no server.
 * @throws ConfigError naming keys, places and valid choices
 */
export function loadRunSettings(
  file: string,
  overrides: readonly string[] = [],
  purpose: SettingsPurpose = 'train',
): RunSettings {
  const paths = ['policy.tokenizer'];
  const loaded = loadConfig(file, {
    schema: RunSettings,
    overrides,
    parts: RECIPES,
    library: LIBRARY,
    paths,
  });
  const workers = loaded.policy.workers ?? availableParallelism();
  const settings = { ...loaded, policy: { ...loaded.policy, workers } };
  checkRunSettings(settings, file, purpose);
  return settings;
}

/** Sections that may change when a run resumes; all others are fixed. */
export const RESUMABLE: readonly string[] = ['servers', 'generation', 'training', 'tracking', 'diagnostics'];

/**
 * The settings of a resumed run with overrides.
 * @throws ConfigError for an override of a fixed setting
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
 * Settings with overrides from the command line, checked together.
 * @throws ConfigError
 */
export function overriddenSettings(
  settings: RunSettings,
  overrides: readonly string[],
  where: string,
  purpose: SettingsPurpose = 'train',
): RunSettings {
  const origins = new Map<string, string>();
  const value = overrideConfig(settings as Json, overrides, origins);
  const changed = validateConfig(value, RunSettings, key => origins.get(key) ?? where);
  checkRunSettings(changed, where, purpose);
  return changed;
}

/**
 * Checks beyond the schema: names that must exist, sums that must match, parts that exclude each other.
 * @throws ConfigError
 */
export function checkRunSettings(
  settings: RunSettings,
  where: string,
  purpose: SettingsPurpose = 'train',
): void {
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
  tagsOf('warm_start.policies', Object.keys(settings.warm_start?.policies ?? {}));
  for (const [name, { tags }] of Object.entries(settings.validation.sets)) {
    tagsOf(`validation.sets.${name}.tags`, tags ?? []);
    if (known.includes(name)) {
      add(
        `validation.sets.${name}`,
        'is named like a tag, so that their metrics would be one: choose another name',
      );
    }
  }
  for (const name of new Set([...settings.train_tags, ...validationTags(settings)])) {
    if (settings.servers.every(({ tag_weights }) => tag_weights[name] === 0)) {
      add('servers', `no server plays ${name}: all have tag_weights.${name} 0`);
    }
  }
  settings.servers.forEach(({ tag_weights }, i) => {
    tagsOf(`servers.${i}.tag_weights`, Object.keys(tag_weights));
  });
  for (const { key, message } of conflictsOf(addressClashes(settings))) add(key, message);
  for (const { key, message } of purpose === 'train' ? settingConflicts(settings) : []) add(key, message);
  for (const { key, message } of overlappingSeeds(settings)) add(key, message);
  if (problems.length > 0) throw new ConfigError(problems);
}

interface SeedRange {
  readonly key: string;
  readonly first: number;
  readonly count: number;
}

const isValidation = ({ key }: SeedRange) => key.startsWith('validation.');

const meet = (a: SeedRange, b: SeedRange) => a.first < b.first + b.count && b.first < a.first + a.count;

/** Level seeds that two of training, validation and warm start would share. */
function overlappingSeeds(settings: RunSettings): SettingConflict[] {
  const { rollout, training, validation, warm_start, algorithm } = settings;
  const first = levelSeeds(settings);
  const rounds = algorithm.filter.fill === 'refill' ? 1 + algorithm.filter.refill_rounds : 1;
  const ahead = rollout.asynchronous ? rollout.asynchronous.max_staleness + 1 : 0;
  const sets = Object.entries(validation.sets).flatMap(([name, { seed, episodes }]) =>
    seed === null
      ? []
      : [{ key: `validation.sets.${name}.seed`, first: seed, count: episodes ?? validation.episodes }],
  );
  const ranges = [
    { key: 'validation.seed', first: first.validation, count: validation.episodes },
    {
      key: 'rollout.start_seed',
      first: first.training,
      count: rollout.env_groups * (rounds * training.steps + ahead),
    },
    ...(warm_start && warm_start.files.length === 0
      ? [{ key: 'warm_start.start_seed', first: first.demonstrations, count: warm_start.episodes }]
      : []),
  ];
  // Sets may share levels with the validation and with one another.
  const overlaps = (a: SeedRange, b: SeedRange) => !(isValidation(a) && isValidation(b)) && meet(a, b);
  return [...sets, ...ranges].flatMap((a, i, all) =>
    all
      .slice(i + 1)
      .filter(b => overlaps(a, b))
      .map(b => ({
        key: b.key,
        message: `its seeds ${b.first} to ${b.first + b.count - 1} overlap those of ${a.key}, ${a.first} to ${a.first + a.count - 1}`,
      })),
  );
}

/** Addresses with a user name or password: no request sends them, while run pages and copies of the config show them. */
function addressClashes({ servers, generation, policy, rollout, tracking, endpoint }: RunSettings): Rules {
  const addresses: readonly (readonly [key: string, url: string | null | undefined, instead: string])[] = [
    ...servers.map(
      ({ url }, i) => [`servers.${i}.url`, url, `the variable RAGEN_TOKEN or servers.${i}.token`] as const,
    ),
    ...generation.urls.map((url, i) => [`generation.urls.${i}`, url, 'generation.token_env'] as const),
    ['policy.tinker.url', policy.tinker?.url, 'policy.tinker.token_env'],
    [
      'policy.reference_endpoint.url',
      policy.reference_endpoint?.url,
      'policy.reference_endpoint.api_key_env',
    ],
    ['rollout.reward.url', rollout.reward?.url, 'rollout.reward.token_env'],
    ['tracking.mlflow.url', tracking.mlflow?.url, 'tracking.mlflow.token_env'],
    ['endpoint.url', endpoint?.url, 'endpoint.api_key_env'],
  ];
  return Object.fromEntries(
    addresses
      .filter(([, url]) => hasCredentials(url ?? ''))
      .map(([key, , instead]) => [
        key,
        `has a user name or password, which is not sent: leave it out, and give a token by ${instead}`,
      ]),
  );
}

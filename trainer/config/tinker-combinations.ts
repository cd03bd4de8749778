import { advantageEstimator } from '../algorithms/advantages/registry.ts';
import { TINKER_PROFILES } from '../policy/tinker/profiles.ts';
import { distributionChange, hasEntropyBonus, needsReference } from './derived.ts';
import { hasOwnReference } from './learning-combinations.ts';
import { ATTENTION_MODULES, MLP_MODULES } from './sections/policy.ts';
import type { Rules } from './sections/schema.ts';
import type { RunSettings } from './settings.ts';

const CHOICE = 'is the choice of a Tinker server';
const AWAY = 'needs the weights, which are at the Tinker server';
const LACKS = 'which a Tinker server does not return';

/** Settings with only one possible value at every Tinker server: the key, the value, and the reason. */
const FIXED: readonly (readonly [string, unknown, string])[] = [
  ['policy.lora.use_dora', false, CHOICE],
  ['policy.lora.rank_stabilized', false, CHOICE],
  ['policy.lora.dropout', 0, CHOICE],
  ['policy.lora.quantization', null, CHOICE],
  ['policy.lora.alpha', 32, CHOICE],
  ['policy.precision', 'float32', CHOICE],
  ['policy.base_precision', 'auto', CHOICE],
  [
    'policy.value_head',
    false,
    'needs values, which a Tinker server does not estimate (recipe=grpo has none)',
  ],
  ['policy.critic', null, AWAY],
  ['policy.reference', null, `${AWAY}: its base model is the reference, or policy.reference_endpoint`],
  ['policy.reference_refresh_every', null, AWAY],
  ['optimizer.ema', null, AWAY],
  ['optimizer.muon', null, CHOICE],
  ['warm_start.muon', null, CHOICE],
  ['generation.engine', 'local', `${AWAY} and sampled there`],
  ['diagnostics.gradients.every', 0, `needs gradients, ${LACKS}`],
  ['rollout.temperature', 1, 'is 1 where a Tinker server trains'],
  ['rollout.constrained', false, 'needs a grammar, which a Tinker server does not take'],
];

/** Settings that the Tinker API cannot express, and settings that its servers ignore. */
export function tinkerClashes(settings: RunSettings): Rules {
  const { runtime, tinker } = settings.policy;
  const isRemote = runtime === 'tinker';
  return {
    'policy.tinker': isRemote
      ? !tinker && 'is null, and runtime tinker needs `url` and `server`'
      : tinker && 'names a server: choose policy.runtime tinker, or null',
    ...(isRemote && tinker && { ...fixedRules(settings), ...otherRules(settings), ...serverRules(settings) }),
  };
}

function fixedRules(settings: RunSettings): Rules {
  const settingAt = (key: string) =>
    key
      .split('.')
      .reduce<unknown>((at, name) => (at as { [name: string]: unknown } | null)?.[name], settings);
  const broken = FIXED.filter(([key, value]) => ![undefined, value].includes(settingAt(key)));
  return Object.fromEntries(broken.map(([key, value, why]) => [key, `${why}: use ${JSON.stringify(value)}`]));
}

/** The model is at the server, which returns log-probabilities of tokens, and nothing else over the vocabulary. */
function otherRules(settings: RunSettings): Rules {
  const { policy, rollout, algorithm, validation, warm_start } = settings;
  const { lora, tokenizer, init } = policy;
  const change = distributionChange({ ...rollout, temperature: 1 });
  const validated = distributionChange({ ...validation, top_k: 0, top_p: 1 });
  const modules: readonly string[] = lora?.target_modules ?? [];
  const isPart = (part: readonly string[]) => new Set(part.map(name => modules.includes(name))).size > 1;
  return {
    'policy.init': init === 'scratch' && 'is scratch, and a Tinker server trains its own models: name one',
    'policy.tokenizer':
      [null, 'words', 'bytes'].includes(tokenizer) &&
      "must be the model's own with runtime tinker: a folder, or a name on a hub",
    'policy.lora': !lora && 'is null, and a Tinker server trains adapters: set it, e.g. to {rank: 32}',
    'policy.lora.target_modules':
      (isPart(ATTENTION_MODULES) || isPart(MLP_MODULES)) &&
      `must be all (the default), ${ATTENTION_MODULES.join(', ')}, or ${MLP_MODULES.join(', ')}: a server takes no part of them`,
    'loss.entropy_coefficient':
      hasEntropyBonus(settings) && `needs entropies, ${LACKS}: use 0, without a schedule`,
    'algorithm.filter.score': algorithm.filter.score.startsWith('entropy') && `needs entropies, ${LACKS}`,
    'algorithm.advantage':
      advantageEstimator(algorithm.advantage).needs.includes('squaredProbabilities') &&
      `${algorithm.advantage} needs sums over the vocabulary, ${LACKS}`,
    [`rollout.${change}`]: change
      ? 'changes the distribution that a Tinker server trains on: turn it off'
      : false,
    [`validation.${validated}`]: validated
      ? 'is not among temperature, top_k and top_p of a Tinker server'
      : false,
    warm_start:
      needsReference(settings) &&
      hasOwnReference(policy) &&
      warm_start !== null &&
      'is not in the reference, which is the base model at a Tinker server: use null, or policy.reference_endpoint',
  };
}

/** Faults of settings that a server drops silently. */
function serverRules({ policy, optimizer, rollout: { asynchronous }, warm_start }: RunSettings): Rules {
  const { server } = policy.tinker!;
  const { clips, appliesAdam, keepsSamplers } = TINKER_PROFILES[server];
  const rules: { [key: string]: Rules[string] } = {
    'rollout.asynchronous':
      asynchronous &&
      (keepsSamplers
        ? asynchronous.keep_stale_cache &&
          'keep_stale_cache has no effect at a Tinker server: a request ends under the weights it began with'
        : `needs samplers that keep their weights, and those of ${server} do not: use null`),
  };
  for (const [name, section] of Object.entries({ optimizer, ...(warm_start && { warm_start }) })) {
    const { clip_norm, weight_decay } = section;
    rules[`${name}.clip_norm`] =
      !clips && clip_norm > 0 && `is ${clip_norm}, which ${server} drops silently: use 0`;
    rules[`${name}.weight_decay`] =
      !appliesAdam &&
      weight_decay > 0 &&
      `is ${weight_decay}, and ${server} takes the learning rate only: use 0`;
  }
  return rules;
}

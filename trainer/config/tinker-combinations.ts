import { advantageEstimator } from '../algorithms/advantages/registry.ts';
import { TINKER_PROFILES } from '../policy/tinker/profiles.ts';
import { distributionChange, hasEntropyBonus, needsReference } from './derived.ts';
import { hasOwnReference } from './learning-combinations.ts';
import { ATTENTION_MODULES, MLP_MODULES } from './sections/lora.ts';
import type { SettingConflict } from './setting-conflict.ts';
import type { RunSettings } from './settings.ts';

/** A condition that must not hold, the setting that it is about, and why. */
type Rule = readonly [isBroken: boolean, key: string, message: string];

/** Settings that the Tinker API has no room for, and those that a server of it does not follow. */
export function tinkerClashes(settings: RunSettings): SettingConflict[] {
  const { policy } = settings;
  const isRemote = policy.runtime === 'tinker';
  const rules: Rule[] = [
    [
      !isRemote && policy.tinker !== null,
      'policy.tinker',
      'names a server: choose policy.runtime tinker, or null',
    ],
    [
      isRemote && policy.tinker === null,
      'policy.tinker',
      'is null, and runtime tinker needs `url` and `server`',
    ],
    ...(isRemote && policy.tinker
      ? [...modelRules(settings), ...learningRules(settings), ...serverRules(settings, policy.tinker.server)]
      : []),
  ];
  return rules.flatMap(([isBroken, key, message]) => (isBroken ? [{ key, message }] : []));
}

/** The model is at the server, and so are its weights. */
function modelRules({ policy, optimizer, generation }: RunSettings): Rule[] {
  const { lora, tokenizer } = policy;
  const chosen = 'is the choice of a Tinker server: use';
  const away = 'needs the weights, which are at the Tinker server: use';
  const modules: readonly string[] = lora?.target_modules ?? [];
  const isWhole = [ATTENTION_MODULES, MLP_MODULES].every(part =>
    [0, part.length].includes(part.filter(name => modules.includes(name)).length),
  );
  return [
    [
      policy.init === 'scratch',
      'policy.init',
      'is scratch, and a Tinker server trains its own models: name one',
    ],
    [
      tokenizer === null || tokenizer === 'words' || tokenizer === 'bytes',
      'policy.tokenizer',
      "must be the model's own with runtime tinker: a folder, or a name on a hub",
    ],
    [
      lora === null,
      'policy.lora',
      'is null, and a Tinker server trains adapters: set it, e.g. to {rank: 32}',
    ],
    [lora?.use_dora === true, 'policy.lora.use_dora', `${chosen} false`],
    [lora?.rank_stabilized === true, 'policy.lora.rank_stabilized', `${chosen} false`],
    [lora !== null && lora.dropout > 0, 'policy.lora.dropout', `${chosen} 0`],
    [lora !== null && lora.quantization !== null, 'policy.lora.quantization', `${chosen} null`],
    [lora !== null && lora.alpha !== 32, 'policy.lora.alpha', `${chosen} 32, as servers do`],
    [
      lora !== null && !isWhole,
      'policy.lora.target_modules',
      `must be all (the default), ${ATTENTION_MODULES.join(', ')}, or ${MLP_MODULES.join(', ')}: a server takes no part of them`,
    ],
    [policy.precision !== 'float32', 'policy.precision', `${chosen} float32`],
    [
      policy.value_head,
      'policy.value_head',
      'is true, and a Tinker server estimates no values: use false, with an algorithm without a critic (recipe=grpo)',
    ],
    [policy.critic !== null, 'policy.critic', `${away} null`],
    [policy.reference_refresh_every !== null, 'policy.reference_refresh_every', `${away} null`],
    [
      policy.reference !== null,
      'policy.reference',
      'is a folder: leave it null for the base model at the Tinker server, or use policy.reference_endpoint',
    ],
    [optimizer.ema !== null, 'optimizer.ema', `${away} null`],
    [generation.engine !== 'local', 'generation.engine', `${away} local, which samples there`],
  ];
}

/** A server returns log-probabilities of tokens, and nothing else over the vocabulary. */
function learningRules(settings: RunSettings): Rule[] {
  const { policy, rollout, algorithm, validation, warm_start, diagnostics } = settings;
  const change = distributionChange({ ...rollout, temperature: 1 });
  const validated = distributionChange({ ...validation, top_k: 0, top_p: 1 });
  const lacks = 'which a Tinker server does not return';
  return [
    [
      hasEntropyBonus(settings),
      'loss.entropy_coefficient',
      `needs entropies, ${lacks}: use 0, without a schedule`,
    ],
    [algorithm.filter.score.startsWith('entropy'), 'algorithm.filter.score', `needs entropies, ${lacks}`],
    [
      advantageEstimator(algorithm.advantage).needs.includes('squaredProbabilities'),
      'algorithm.advantage',
      `${algorithm.advantage} needs sums over the vocabulary, ${lacks}`,
    ],
    [diagnostics.gradients.every > 0, 'diagnostics.gradients', `needs gradients, ${lacks}: use every: 0`],
    [
      rollout.temperature !== 1,
      'rollout.temperature',
      `is ${rollout.temperature}, and Tinker servers train at 1`,
    ],
    [
      change !== undefined,
      `rollout.${change}`,
      'changes the distribution that a Tinker server trains on: turn it off',
    ],
    [
      validated !== undefined,
      `validation.${validated}`,
      'is not among temperature, top_k and top_p of a Tinker server',
    ],
    [
      rollout.constrained,
      'rollout.constrained',
      'needs a grammar, which a Tinker server does not take: use false',
    ],
    [
      needsReference(settings) && hasOwnReference(policy) && warm_start !== null,
      'warm_start',
      'is not in the reference, which is the base model at a Tinker server: use null, or policy.reference_endpoint',
    ],
  ];
}

function serverRules(
  { optimizer, rollout, warm_start }: RunSettings,
  server: keyof typeof TINKER_PROFILES,
): Rule[] {
  const { clips, appliesAdam, keepsSamplers } = TINKER_PROFILES[server];
  const sections = { optimizer, ...(warm_start ? { warm_start } : {}) };
  return [
    ...Object.entries(sections).flatMap(([name, { clip_norm, weight_decay }]): Rule[] => [
      [
        clip_norm > 0 && !clips,
        `${name}.clip_norm`,
        `is ${clip_norm}, which ${server} drops silently: use 0`,
      ],
      [
        weight_decay > 0 && !appliesAdam,
        `${name}.weight_decay`,
        `is ${weight_decay}, and ${server} takes the learning rate only: use 0`,
      ],
    ]),
    [
      rollout.asynchronous !== null && !keepsSamplers,
      'rollout.asynchronous',
      `needs samplers that keep their weights, and those of ${server} do not: use null`,
    ],
    [
      rollout.asynchronous?.keep_stale_cache === true,
      'rollout.asynchronous',
      'keep_stale_cache has no effect at a Tinker server: a request ends under the weights it began with',
    ],
  ];
}

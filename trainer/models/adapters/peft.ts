import type { Json, JsonObject } from '../../../shared/json.ts';
import { type DecoderConfig, ModelConfigError, show } from '../config.ts';
import { parameterSpecs } from '../parameters.ts';
import { hasAdapter, LORA_MODULES, type LoraConfig, type LoraModule } from './lora.ts';

/** Prefix of weight names in PEFT's files. */
export const PEFT_PREFIX = 'base_model.model.';

/** Keys of PEFT's `adapter_config.json` that do not change an adapter's result here. */
const INERT = [
  'auto_mapping',
  'base_model_name_or_path',
  'inference_mode',
  'lora_dropout', // while training only, where settings say it
  'megatron_core',
  'peft_version',
  'qalora_group_size', // with use_qalora only
];
const READ = [
  'peft_type',
  'task_type',
  'r',
  'lora_alpha',
  'use_rslora',
  'use_dora',
  'target_modules',
  'bias',
  'init_lora_weights',
  'revision',
];
/** Initializations of an adapter that leave the base unchanged. */
const PLAIN_STARTS: readonly Json[] = [true, false, 'gaussian', 'orthogonal'];

/** An adapter as `adapter_config.json` describes it. */
export interface PeftAdapter {
  readonly lora: LoraConfig;
  /** Location of its base during training: a folder, or a name on a hub. */
  readonly base: string | null;
  /** Branch, tag or commit of the base on a hub; null where none is named. */
  readonly revision: string | null;
}

/**
 * Reads PEFT's `adapter_config.json`: LoRA with one rank on some of {@link LORA_MODULES}, plain, rank-stabilized or with DoRA.
 * @throws ModelConfigError naming an option that is not supported, and what is
 */
export function parsePeftConfig(json: JsonObject): PeftAdapter {
  if (json.peft_type !== 'LORA') {
    throw new ModelConfigError(`peft_type ${show(json.peft_type)} is not supported; supported: LORA`);
  }
  if (json.task_type != null && json.task_type !== 'CAUSAL_LM') {
    throw new ModelConfigError(`task_type ${show(json.task_type)} is not supported; supported: CAUSAL_LM`);
  }
  if (json.bias !== undefined && json.bias !== 'none') {
    throw new ModelConfigError(`bias ${show(json.bias)}: trained biases are not supported; supported: none`);
  }
  const start = json.init_lora_weights ?? true;
  if (!PLAIN_STARTS.includes(start)) {
    throw new ModelConfigError(
      `init_lora_weights ${show(start)} changes the base: convert the adapter to plain LoRA with PEFT (path_initial_model_for_weight_conversion)`,
    );
  }
  for (const [key, value] of Object.entries(json)) {
    if (READ.includes(key) || INERT.includes(key) || isOff(value)) continue;
    throw new ModelConfigError(
      `${key} ${show(value)} is not supported; it must be off (null, false or empty)`,
    );
  }
  return {
    lora: checkedLora({
      rank: json.r as number,
      alpha: json.lora_alpha as number,
      rankStabilized: json.use_rslora === true,
      dora: json.use_dora === true,
      modules: modulesOf(json.target_modules),
    }),
    base: typeof json.base_model_name_or_path === 'string' ? json.base_model_name_or_path : null,
    revision: typeof json.revision === 'string' ? json.revision : null,
  };
}

/**
 * The `adapter_config.json` that {@link parsePeftConfig} and PEFT read back.
 * @param dropout that it was learned with, for further training with PEFT
 */
export function peftConfigToJson({ lora, base, revision }: PeftAdapter, dropout = 0): JsonObject {
  return {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: base,
    revision,
    r: lora.rank,
    lora_alpha: lora.alpha,
    use_rslora: lora.rankStabilized,
    use_dora: lora.dora,
    lora_dropout: dropout,
    target_modules: [...lora.modules],
    bias: 'none',
    fan_in_fan_out: false,
    inference_mode: true,
    init_lora_weights: true,
    modules_to_save: null,
  };
}

/**
 * An adapter's config, its modules in the order of {@link LORA_MODULES}.
 * @throws ModelConfigError when rank or alpha are not positive numbers, or there is no module
 */
function checkedLora(lora: LoraConfig): LoraConfig {
  if (!Number.isInteger(lora.rank) || lora.rank < 1) {
    throw new ModelConfigError(`the rank (r) must be an integer of at least 1, got ${show(lora.rank)}`);
  }
  if (!(lora.alpha > 0)) throw new ModelConfigError(`alpha must be above 0, got ${show(lora.alpha)}`);
  const modules = LORA_MODULES.filter(module => lora.modules.includes(module));
  if (modules.length === 0) {
    throw new ModelConfigError(`target_modules is empty; choose of ${LORA_MODULES.join(', ')}`);
  }
  return { ...lora, modules };
}

/**
 * A model's config with adapters on those of the named linear layers that it has. All of {@link LORA_MODULES} mean all
 * that it has.
 * @throws ModelConfigError when the model lacks a linear layer that is named
 */
export function withLora(config: DecoderConfig, lora: LoraConfig): DecoderConfig {
  const checked = checkedLora(lora);
  const names = parameterSpecs(config, false).map(({ name }) => name.slice(0, -'.weight'.length));
  const there = LORA_MODULES.filter(module =>
    names.some(name => hasAdapter({ ...checked, modules: [module] }, name)),
  );
  const missing = checked.modules.find(module => !there.includes(module));
  if (missing !== undefined && checked.modules.length < LORA_MODULES.length) {
    throw new ModelConfigError(
      `target_modules holds ${missing}, which models of type ${config.architecture} do not have; they have ${there.join(', ')}`,
    );
  }
  return {
    ...config,
    lora: { ...checked, modules: checked.modules.filter(module => there.includes(module)) },
  };
}

function modulesOf(value: Json | undefined): LoraModule[] {
  if (value === 'all-linear') return [...LORA_MODULES];
  if (!Array.isArray(value)) {
    throw new ModelConfigError(
      `target_modules ${show(value)}: patterns are not supported; give a list of ${LORA_MODULES.join(', ')}`,
    );
  }
  const modules = value.map(name => {
    // PEFT writes `all-linear` of small models as the full name of every layer's module.
    const known = LORA_MODULES.find(module => module === name || String(name).endsWith(`.${module}`));
    if (known !== undefined) return known;
    throw new ModelConfigError(
      `target_modules holds ${show(name)}, which cannot have an adapter here; can: ${LORA_MODULES.join(', ')}`,
    );
  });
  return [...new Set(modules)];
}

function isOff(value: Json): boolean {
  if (value === null || value === false) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

import Type, { type Static } from 'typebox';
import { LORA_MODULES, type LoraConfig } from '../../models/adapters/lora.ts';
import { QUANTIZATIONS } from '../../models/quantized.ts';
import { aboveZero, flag, orNull, positive, strict } from './schema.ts';

/** Layers that servers of the Tinker API adapt together. */
export const ATTENTION_MODULES = ['q_proj', 'k_proj', 'v_proj', 'o_proj'] as const;
export const MLP_MODULES = ['gate_proj', 'up_proj', 'down_proj'] as const;

/** Adapters that are learned next to a model instead of the model itself. */
export const LoraSection = Type.Object(
  {
    /** Rank of the adapters. */
    rank: positive(16),
    /** An adapter's output is multiplied by alpha / rank … */
    alpha: aboveZero(32),
    /** … or by alpha / √rank. */
    rank_stabilized: flag(false),
    /** DoRA. */
    use_dora: flag(false),
    /** Linear layers with an adapter. */
    target_modules: Type.Array(Type.Enum([...LORA_MODULES]), {
      minItems: 1,
      uniqueItems: true,
      default: [...LORA_MODULES],
    }),
    /** Dropout of adapter inputs in updates. */
    dropout: Type.Number({ minimum: 0, exclusiveMaximum: 1, default: 0 }),
    /** Storage of the frozen linear weights, in blocks of 64; null: float32. */
    quantization: orNull(Type.Enum([...QUANTIZATIONS])),
  },
  strict,
);
export type LoraSection = Static<typeof LoraSection>;

export function loraConfig(section: LoraSection): LoraConfig {
  const { rank, alpha, rank_stabilized, use_dora, target_modules } = section;
  return { rank, alpha, rankStabilized: rank_stabilized, dora: use_dora, modules: target_modules };
}

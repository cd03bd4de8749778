/** Linear layers of every decoder layer that can have an adapter; each family has some of them. */
export const LORA_MODULES = [
  'q_proj',
  'k_proj',
  'v_proj',
  'o_proj',
  'gate_proj',
  'up_proj',
  'down_proj',
  'qkv_proj',
  'gate_up_proj',
] as const;
export type LoraModule = (typeof LORA_MODULES)[number];

/**
 * Low-rank adapters (LoRA; Hu et al., 2021) on linear layers: y = x·Wᵀ + scale · (x·Aᵀ)·Bᵀ with A [rank, in] and
 * B [out, rank].
 */
export interface LoraConfig {
  readonly rank: number;
  readonly alpha: number;
  /** The scale is alpha / √rank (rsLoRA; Kalajdzievski, 2023) instead of alpha / rank. */
  readonly rankStabilized: boolean;
  /** Learns the norms of the rows separately from their directions (DoRA), see `dora.ts`. */
  readonly dora: boolean;
  readonly modules: readonly LoraModule[];
}

/** Factor on what an adapter adds. */
export function loraScale({ rank, alpha, rankStabilized }: LoraConfig): number {
  return alpha / (rankStabilized ? Math.sqrt(rank) : rank);
}

/** PEFT's names of the two matrices of a linear layer's adapter. */
export function loraNames(linear: string): { readonly a: string; readonly b: string } {
  return { a: `${linear}.lora_A.weight`, b: `${linear}.lora_B.weight` };
}

/** PEFT's name of the norms [out] that DoRA learns for a linear layer. */
export function magnitudeName(linear: string): string {
  return `${linear}.lora_magnitude_vector`;
}

/** True if a linear layer, such as `model.layers.0.mlp.up_proj`, has an adapter. Experts have none, as in PEFT. */
export function hasAdapter(lora: LoraConfig | undefined, linear: string): lora is LoraConfig {
  const module = linear.slice(linear.lastIndexOf('.') + 1);
  if (lora === undefined || linear.includes('.experts.')) return false;
  return (lora.modules as readonly string[]).includes(module);
}

/** W + scale · B·A of a linear layer [outputs, inputs], in a new array. */
export function mergedWeight(
  weight: Float32Array,
  { a, b, rank, scale }: { a: Float32Array; b: Float32Array; rank: number; scale: number },
): Float32Array {
  const outputs = b.length / rank;
  const inputs = a.length / rank;
  const merged = new Float32Array(weight.length);
  const row = new Float64Array(inputs);
  for (let output = 0; output < outputs; output++) {
    row.fill(0);
    for (let r = 0; r < rank; r++) {
      const factor = scale * b[output * rank + r];
      for (let input = 0; input < inputs; input++) row[input] += factor * a[r * inputs + input];
    }
    const start = output * inputs;
    for (let input = 0; input < inputs; input++) merged[start + input] = weight[start + input] + row[input];
  }
  return merged;
}

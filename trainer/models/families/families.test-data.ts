import { read } from '../golden.test-data.ts';
import { parsePeftConfig } from '../peft.ts';

/** Golden models of the families, made by test/golden/make-families.py, under test/golden/models. */
export const FAMILY_MODELS: readonly string[] = [
  'mistral',
  'mistral-sliding',
  'gemma2',
  'gemma3-text',
  'phi3',
  'phi4-mini',
  'smollm3',
  'olmo2',
  'qwen2-sliding',
  'qwen3-moe',
  'llama-gelu',
].map(name => `families/${name}`);

/** Norm, sum and first elements of a gradient. */
export interface GoldenGradient {
  readonly norm: number;
  readonly sum: number;
  readonly head: readonly number[];
}

export interface GoldenLoss {
  readonly loss_mean_over_valid: number;
  readonly grads: Readonly<Record<string, GoldenGradient>>;
}

/** What transformers and PEFT compute of a golden model. */
export interface GoldenFamily {
  readonly forward: Readonly<Record<string, readonly number[]>> & {
    readonly next_token_logprob: readonly (readonly number[])[];
  };
  readonly cross_entropy: GoldenLoss;
  readonly greedy: { readonly prompt_ids: readonly number[]; readonly generated_ids: readonly number[] };
  readonly lora: GoldenLoss & { readonly logits_last_valid_row0: readonly number[] };
}

export function goldenFamily(model: string): GoldenFamily {
  return read(model, 'expected.json');
}

export function goldenLora(model: string) {
  return parsePeftConfig(read(model, 'lora/adapter_config.json')).lora;
}

/** Largest difference of two lists. */
export function largestDifference(got: ArrayLike<number>, expected: ArrayLike<number>): number {
  let worst = 0;
  for (let i = 0; i < expected.length; i++) worst = Math.max(worst, Math.abs(got[i] - expected[i]));
  return worst;
}

/** How far a gradient is from the golden one in norm, sum and first elements, relative to its norm. */
export function gradientDifference(got: Float32Array, { norm, sum, head }: GoldenGradient): number {
  const grad = Float64Array.from(got);
  const differences = [
    Math.hypot(...grad) - norm,
    // The sum of n elements of one norm is up to √n as large.
    (grad.reduce((a, b) => a + b, 0) - sum) / Math.sqrt(grad.length),
    ...head.map((x, i) => grad[i] - x),
  ];
  return Math.max(...differences.map(Math.abs)) / (norm + 1e-3);
}

import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { PEFT_PREFIX, parsePeftConfig } from './adapters/peft.ts';
import { SafetensorsReader } from './files/safetensors.ts';
import { folderOf, read } from './golden.test-data.ts';
import type { ParameterSpec } from './parameters.ts';

/** Golden models of the families, made by test/golden/make-families.py, under test/golden/models. */
export const FAMILY_MODELS: readonly string[] = [
  'qwen3',
  'llama3',
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
  'seed-oss',
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

/** Results of transformers and PEFT for a golden model. */
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

/**
 * The weights of a golden model's adapter.
 * @throws Error when PEFT names them otherwise
 */
export async function goldenAdapter(
  model: string,
  specs: readonly ParameterSpec[],
  folder = 'lora',
): Promise<ParameterStore> {
  const store = new ParameterStore(specs);
  const path = new URL(`${folder}/adapter_model.safetensors`, folderOf(model)).pathname;
  await using file = await SafetensorsReader.open(path);
  const known = new Set(specs.map(({ name }) => PEFT_PREFIX + name));
  const others = [...file.tensors.keys()].filter(name => !known.has(name));
  if (others.length > 0) throw new Error(`${model}: PEFT has ${others.join(', ')}`);
  for (const { name } of specs) await file.read(PEFT_PREFIX + name, store.array(name));
  return store;
}

/** Largest difference of two lists. */
export function largestDifference(got: ArrayLike<number>, expected: ArrayLike<number>): number {
  let worst = 0;
  for (let i = 0; i < expected.length; i++) worst = Math.max(worst, Math.abs(got[i] - expected[i]));
  return worst;
}

/** Distance of a gradient from the golden one in norm, sum and first elements, relative to its norm. */
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

import type { ModelFamily } from './family.ts';
import { gemma2, gemma3Text } from './gemma.ts';
import { llama, mistral, olmo2, phi3, smollm3 } from './llama.ts';
import { qwen2, qwen3, qwen3Moe, seedOss } from './qwen.ts';

export type { ModelFamily } from './family.ts';

/** Every family of models, one a line. */
export const FAMILIES: readonly ModelFamily[] = [
  qwen2,
  qwen3,
  llama,
  mistral,
  gemma2,
  gemma3Text,
  phi3,
  smollm3,
  olmo2,
  qwen3Moe,
  seedOss,
];

import type { ModelFamily } from './family.ts';
import { gemma2 } from './gemma2.ts';
import { gemma3Text } from './gemma3-text.ts';
import { llama } from './llama.ts';
import { mistral } from './mistral.ts';
import { olmo2 } from './olmo2.ts';
import { phi3 } from './phi3.ts';
import { qwen2 } from './qwen2.ts';
import { qwen3 } from './qwen3.ts';
import { qwen3Moe } from './qwen3-moe.ts';
import { seedOss } from './seed-oss.ts';
import { smollm3 } from './smollm3.ts';

export type { ModelFamily } from './family.ts';

/** Every family of models, a line each. */
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

import type { DecoderConfig } from '../../trainer/models/config.ts';
import { parseConfig } from '../../trainer/models/config-json.ts';
import { SHAPE } from '../chat-model/model.ts';
import { publishedConfig } from '../compute/published.ts';
import { configOf, shapeNamed } from '../compute/shapes.ts';

/** A model, how it is learned, and a group of sequences of it. */
export interface MemoryCase {
  readonly name: string;
  readonly what: string;
  readonly model: () => DecoderConfig;
  /** Rank of the adapters; null where all weights are learned. */
  readonly rank: number | null;
  readonly quantization: 'int8' | 'nf4' | null;
  readonly recompute: boolean;
  readonly group: number;
  /** Tokens of a prompt, and of a response. */
  readonly prompt: number;
  readonly generated: number;
  /** Tokens of a micro-batch. */
  readonly tokens: number;
}

export const CASES: readonly MemoryCase[] = [
  {
    name: '2M',
    what: 'all weights',
    model: () => parseConfig(SHAPE),
    rank: null,
    quantization: null,
    recompute: false,
    group: 16,
    prompt: 240,
    generated: 16,
    tokens: 2048,
  },
  {
    name: '0.1B',
    what: 'LoRA',
    model: () => configOf(shapeNamed('0.1B')),
    rank: 8,
    quantization: null,
    recompute: false,
    group: 8,
    prompt: 112,
    generated: 16,
    tokens: 1024,
  },
  quantized('0.5B', 'qwen2.5-0.5b'),
  quantized('1.5B', 'qwen2.5-1.5b'),
];

/** A published shape that is learned on a processor with little memory. */
function quantized(name: string, shape: string): MemoryCase {
  return {
    name,
    what: 'LoRA over nf4',
    model: () => publishedConfig(shape),
    rank: 8,
    quantization: 'nf4',
    recompute: true,
    group: 8,
    prompt: 120,
    generated: 8,
    tokens: 512,
  };
}

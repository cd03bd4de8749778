import type { Claim } from './claim.ts';
import { EVERY_SEED_ONE_TEST, within } from './overrides.ts';

/** Placeholder in overrides: the path of SmolLM2's file. */
export const SMOLLM2 = '{smollm2}';

const CONFIG = 'configs/smollm2-larger.yaml';
const COMMON = [`policy.init=${SMOLLM2}`, EVERY_SEED_ONE_TEST];

export const PUBLISHED_MODEL: Claim = {
  number: 8,
  name: 'smollm2',
  title: 'A published model learns by reinforcement',
  text: [
    'SmolLM2-135M-Instruct from its GGUF file (`npm run model:smollm2`), as [Train SmolLM2](../how-to/train-smollm2.md) has it: 64 demonstrations, then GRPO on adapters of rank 16, one step an iteration. “Before” is after the demonstrations; the row “untouched” is the model as published, the same for every seed, with the same prompts. Success is sampled at temperature 1 on 128 episodes that every seed shares.',
    'It says which of two numbers is larger, validated on questions that training never shows: answers of the right form that guess come to 50 %.',
  ],
  runs: [
    { variant: 'untouched', config: CONFIG, overrides: [...COMMON, 'warm_start=null', ...within(0, 10)] },
    { variant: 'demonstrations and GRPO', config: CONFIG, overrides: [...COMMON, ...within(20, 18)] },
  ],
  pairs: [],
  references: [],
};

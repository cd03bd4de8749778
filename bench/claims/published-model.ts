import type { Claim } from './claim.ts';
import { EVERY_SEED_ONE_TEST, within } from './overrides.ts';

/** Stands for the path of SmolLM2's file in overrides. */
export const SMOLLM2 = '{smollm2}';

const LARGER = 'configs/smollm2-larger.yaml';
const BANDIT = 'configs/smollm2-bandit.yaml';
const COMMON = [`policy.init=${SMOLLM2}`, EVERY_SEED_ONE_TEST];
const UNTOUCHED = [...COMMON, 'warm_start=null', ...within(0, 10)];

export const PUBLISHED_MODEL: Claim = {
  number: 8,
  name: 'smollm2',
  title: 'A published model learns by reinforcement',
  text: [
    'SmolLM2-135M-Instruct from its GGUF file (`npm run model:smollm2`), as [Train SmolLM2](../how-to/train-smollm2.md) has it: 64 demonstrations, then reinforcement learning on adapters of rank 16, one step an iteration. “Before” is after the demonstrations; the rows “untouched” are the model as published, with the same prompts. Success is sampled at temperature 1 on 128 episodes that every seed shares.',
    '“Larger number” asks which of two numbers is larger, validated on questions that training never shows: answers of the right form that guess come to 50 %. “Bandit” names two arms, one of which pays more on average; its demonstrations pull at random, and it is validated on eight pairs of names that occur in nothing it learns from.',
  ],
  runs: [
    { variant: 'larger number, untouched', config: LARGER, overrides: UNTOUCHED },
    { variant: 'larger number', config: LARGER, overrides: [...COMMON, ...within(20, 30)] },
    { variant: 'Bandit, untouched', config: BANDIT, overrides: UNTOUCHED },
    { variant: 'Bandit', config: BANDIT, overrides: [...COMMON, ...within(15, 30)] },
  ],
  pairs: [],
  references: [],
};

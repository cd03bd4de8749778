import { type Claim, EVERY_SEED_ONE_TEST, within } from './claim.ts';

/** Placeholder in overrides: the path of SmolLM2's file. */
export const SMOLLM2 = '{smollm2}';

const CONFIG = 'configs/smollm2-larger.yaml';
const COUNTDOWN = 'configs/smollm2-countdown.yaml';
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

export const PUBLISHED_MODEL_COUNTDOWN: Claim = {
  number: 9,
  name: 'smollm2-countdown',
  title: 'A published model learns Countdown with two numbers',
  text: [
    'SmolLM2-135M-Instruct from its GGUF file: 192 answers, half of a player that draws sign and order at random and half right, then GRPO on adapters of rank 16, one step an iteration. “Before” is after these answers; the row “untouched” is the model as published, the same for every seed, with the same prompts. Success is sampled at temperature 1 on 128 puzzles that every seed shares and that training never shows.',
    'Two numbers up to 99 come to a target up to 30 by + or −. Six puzzles in seven need −, with the larger number first.',
  ],
  runs: [
    { variant: 'untouched', config: COUNTDOWN, overrides: [...COMMON, 'warm_start=null', ...within(0, 10)] },
    { variant: 'answers and GRPO', config: COUNTDOWN, overrides: [...COMMON, ...within(15, 60)] },
  ],
  pairs: [],
  references: [
    {
      name: 'random player',
      success: '24 %',
      source:
        'the same puzzles, `evaluate configs/smollm2-countdown.yaml --policy random seeds.validation=123`',
    },
  ],
};

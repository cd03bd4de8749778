import { writeFileSync } from 'node:fs';
import { PAIRS } from '../../env-server/environments/bandit/bandit.ts';
import { Random } from '../../shared/random.ts';
import { parseConfig } from '../../trainer/models/config-json.ts';
import { initialize, parameterSpecs } from '../../trainer/models/parameters.ts';
import { loadTokenizer } from '../../trainer/models/tokenizer/load.ts';
import { saveModel } from '../../trainer/policy/checkpoint/checkpoint.ts';
import { ParameterStore } from '../../trainer/tensor/runtime/parameter-store.ts';

/** Qwen2's decoder with 2.0 million weights, over the golden tokenizer of 512 tokens. */
export const SHAPE = {
  model_type: 'qwen2',
  vocab_size: 512,
  hidden_size: 192,
  intermediate_size: 640,
  num_hidden_layers: 4,
  num_attention_heads: 6,
  num_key_value_heads: 2,
  max_position_embeddings: 2048,
  rope_theta: 1e4,
  tie_word_embeddings: true,
};
const CONFIG = { ...SHAPE, eos_token_id: 511, pad_token_id: 509 };
/** Fresh weights of this width get going with larger ones than the 0.02 of `config.json`. */
const DEVIATION = 0.05;
const SEED = 0;

/** Writes a model with fresh weights, its tokenizer and its chat template. @returns how many weights it has */
export async function writeFreshModel(folder: string, tokenizer: string): Promise<number> {
  const config = parseConfig(CONFIG);
  const specs = parameterSpecs(config, false);
  const weights = new ParameterStore(specs);
  initialize(weights, specs, DEVIATION, SEED);
  const { files } = await loadTokenizer(tokenizer);
  await saveModel(folder, { config, base: null, weights, files });
  return weights.size;
}

/** Everyday words, things and professions, as a pretrained model knows how to spell them. */
const THINGS =
  'apple bread cloud door earth flower garden house island kitchen mountain night ocean river table water';
const WORDS = [...THINGS.split(' '), ...PAIRS.train.flat()];

/** Questions of the pretraining. None says what a game is, how to write an answer or which arm is better. */
const QUESTIONS: readonly ((random: Random) => readonly [string, string])[] = [
  random => {
    const word = random.choice(WORDS);
    return [`Say ${word}.`, word];
  },
  random => {
    const [first, second] = random.shuffle([...WORDS]);
    return [`Which comes first in this list?\n${first} or ${second}`, first];
  },
  random => {
    const [first, second] = random.shuffle([...WORDS]);
    return [`Which comes last in this list?\n${first} or ${second}`, second];
  },
  random => {
    const word = random.choice(WORDS);
    return [`Write ${word} twice.`, `${word} ${word}`];
  },
  random => {
    const [a, b] = [random.integer(5), random.integer(5)];
    return [`What is ${a} + ${b}?`, String(a + b)];
  },
];

/** Writes conversations to pretrain on, as JSON Lines. */
export function writeChats(file: string, count: number): void {
  const random = Random.fromSeed(SEED);
  const lines = Array.from({ length: count }, () => {
    const [question, answer] = random.choice(QUESTIONS)(random);
    return JSON.stringify({
      messages: [
        { role: 'user', content: question },
        { role: 'assistant', content: answer },
      ],
    });
  });
  writeFileSync(file, `${lines.join('\n')}\n`);
}

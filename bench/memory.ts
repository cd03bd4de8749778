/**
 * Memory that `--dry-run` says, and what a process then takes, for four shapes: 2 million weights, LoRA on 0.1 billion, and
 * LoRA on a quantized base of 0.5 and 1.5 billion. Each loads, generates a group, scores it and learns from it in a separate process
 * (bench/checkpoint.ts). PEFT takes the same step where RAGEN_PYTHON has torch, transformers and peft; its base is float32.
 *
 *     npm run bench:memory [-- --shapes 2M,0.1B,0.5B,1.5B --threads 2 --steps 2 --models /tmp]
 *
 * `--shapes` names some of the four; `--threads` are those of a matrix product; of `--steps` the fastest counts; `--models` is the
 * folder that models are written to and found in again. `--help` prints this.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { ALLOCATOR } from '../shared/allocator.ts';
import { lacksPython, runPython } from '../test/python.test-data.ts';
import { loadRunSettings } from '../trainer/config/load.ts';
import { readShape, runSizes } from '../trainer/config/sizes.ts';
import type { DecoderConfig } from '../trainer/models/config.ts';
import { parseConfig } from '../trainer/models/config-json.ts';
import { CONFIG_FILE } from '../trainer/policy/checkpoint/model-folder.ts';
import { publishedConfig, writeRandomModel } from './compute/random-model.ts';
import { configOf, shapeNamed } from './compute/shapes.ts';
import { positiveInteger, scriptFlags } from './flags.ts';

const CHECKPOINT = fileURLToPath(new URL('./checkpoint.ts', import.meta.url));
const PEFT_STEP = new URL('./memory/peft_step.py', import.meta.url);
const GIGABYTE = 1e9;
/** Qwen2's decoder with 2.0 million weights. */
const SHAPE_2M = {
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

/** A model, how it is learned, and a group of sequences of it. */
interface MemoryCase {
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

const CASES: readonly MemoryCase[] = [
  {
    name: '2M',
    what: 'all weights',
    model: () => parseConfig(SHAPE_2M),
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

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    shapes: { type: 'string', default: CASES.map(({ name }) => name).join(',') },
    threads: { type: 'string', default: '2' },
    steps: { type: 'string', default: '2' },
    /** Folder that the models go to, and are found in again. */
    models: { type: 'string', default: tmpdir() },
  },
});
const threads = positiveInteger('threads', flags.threads);
const steps = positiveInteger('steps', flags.steps);
const cases = flags.shapes.split(',').map(name => {
  const found = CASES.find(each => each.name === name);
  if (found) return found;
  throw new RangeError(`--shapes ${name}: there are ${CASES.map(each => each.name).join(', ')}`);
});
const lacking = lacksPython('torch', 'transformers', 'peft');

for (const each of cases) {
  const folder = join(flags.models, `ragen-memory-${each.name}`);
  if (!existsSync(join(folder, CONFIG_FILE))) {
    await writeRandomModel(folder, each.model(), { type: 'BF16', seed: 0 });
  }
  const { totalBytes, memory } = await estimate(each, folder);
  const measured = await measure(each, folder);
  const ratio = (totalBytes / (measured.gigabytes * GIGABYTE)).toFixed(3);
  console.log(
    `${each.name}, ${each.what}: estimated ${(totalBytes / GIGABYTE).toFixed(2)} GB, measured ${measured.gigabytes.toFixed(2)} GB, ratio ${ratio}; step ${measured.seconds.toFixed(2)} s`,
  );
  for (const { what, bytes } of memory) console.log(`  ${(bytes / 1e6).toFixed(0).padStart(6)} MB ${what}`);
  if (lacking !== false) console.log(`  PEFT: skipped, ${lacking}`);
  else {
    const peft = await stepOfPeft(each, folder);
    console.log(
      `  ${each.rank === null ? 'transformers' : 'PEFT'}, float32 base: step ${peft.seconds.toFixed(2)} s, ${(peft.peak / GIGABYTE).toFixed(2)} GB at most`,
    );
  }
}

/** The estimate of `--dry-run` for a run with such groups. */
async function estimate({ rank, quantization, recompute, ...each }: MemoryCase, folder: string) {
  const lora =
    rank === null ? [] : [`policy.lora={rank: ${rank}, alpha: ${2 * rank}, quantization: ${quantization}}`];
  const settings = loadRunSettings('configs/bandit-nano.yaml', [
    ...lora,
    `policy.init=${folder}`,
    'warm_start=null',
    'rollout.prompt=chat',
    'loss.entropy_coefficient=0',
    `policy.context=${each.prompt + each.generated}`,
    `policy.micro_batch_tokens=${each.tokens}`,
    `policy.recompute=${recompute}`,
    'policy.workers=1',
    `policy.threads=${threads}`,
    'rollout.env_groups=1',
    `rollout.group_size=${each.group}`,
    `validation.episodes=${each.group}`,
    `algorithm.mini_batch_size=${each.group}`,
  ]);
  return runSizes(settings, await readShape(folder, settings));
}

/** Seconds of the fastest step, and the most memory of the process. */
async function measure({ rank, quantization, recompute, ...each }: MemoryCase, folder: string) {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [
      CHECKPOINT,
      ...['--model', folder, '--threads', String(threads), '--steps', String(steps)],
      ...[
        '--group',
        String(each.group),
        '--prompt',
        String(each.prompt),
        '--generated',
        String(each.generated),
      ],
      ...['--tokens', String(each.tokens)],
      ...(rank === null ? [] : ['--lora', String(rank)]),
      ...(quantization === null ? [] : ['--quantization', quantization]),
      ...(recompute ? ['--recompute'] : []),
    ],
    { env: { ...process.env, ...ALLOCATOR } },
  );
  const times = [...stdout.matchAll(/^PPO step \d+: ([\d.]+) s/gm)].map(([, seconds]) => Number(seconds));
  const gigabytes = Number(/^most memory: ([\d.]+) GB/m.exec(stdout)?.[1]);
  if (times.length !== steps || !(gigabytes > 0)) throw new Error(`unexpected output:\n${stdout}`);
  return { seconds: Math.min(...times), gigabytes };
}

async function stepOfPeft({ rank, recompute, ...each }: MemoryCase, folder: string) {
  const numbers = [
    rank ?? 0,
    each.group,
    each.prompt + each.generated,
    each.generated,
    threads,
    Number(recompute),
    steps,
  ];
  return (await runPython(PEFT_STEP, folder, ...numbers.map(String))) as {
    readonly seconds: number;
    readonly peak: number;
  };
}

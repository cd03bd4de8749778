/**
 * How far ragen is from transformers and PEFT on a small random model of every family, and writes the table into
 * docs/reference/models.md.
 *
 *     RAGEN_PYTHON=<python with torch, transformers and peft> npm run bench:families [-- --models gemma2,phi3]
 *
 * Logits, gradients and greedy text are compared with the golden files that test/golden/make-families.py makes. Then each
 * model and its adapter are written to a folder, which transformers and PEFT read.
 */

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { lacksPython, runPython } from '../test/python.test-data.ts';
import { GenerationEngine } from '../trainer/generation/engine.ts';
import type { Generation } from '../trainer/generation/generation.ts';
import type { DecoderConfig } from '../trainer/models/config.ts';
import { parseConfig } from '../trainer/models/config-json.ts';
import {
  FAMILY_MODELS,
  type GoldenLoss,
  goldenAdapter,
  goldenFamily,
  goldenLora,
  gradientDifference,
  largestDifference,
} from '../trainer/models/families.test-data.ts';
import { buildLoss, goldenBatch, goldenWeights, read } from '../trainer/models/golden.test-data.ts';
import { loraSpecs, parameterSpecs } from '../trainer/models/parameters.ts';
import { saveModel } from '../trainer/policy/checkpoint/checkpoint.ts';
import { OnnxRuntime } from '../trainer/tensor/runtime/onnx/onnx-runtime.ts';
import { joinParameters, type ParameterSource } from '../trainer/tensor/runtime/parameter-store.ts';
import type { Runtime } from '../trainer/tensor/runtime/runtime.ts';
import { WebGpuRuntime } from '../trainer/tensor/runtime/webgpu/webgpu-runtime.ts';
import { scriptFlags } from './flags.ts';

const PAGE = new URL('../docs/reference/models.md', import.meta.url);
const MARKS = ['<!-- families: made by npm run bench:families -->\n', '<!-- /families -->\n'];
const HEADER = [
  ...['model', 'logits', 'gradients', 'greedy', "PEFT's adapter: gradients", 'ours in PEFT: logits'],
  ...['WebGPU: logits', 'WebGPU: gradients', 'WebGPU: greedy'],
];

const { values: flags } = scriptFlags(import.meta.filename, { options: { models: { type: 'string' } } });
const wanted = flags.models?.split(',').map(name => `families/${name}`) ?? FAMILY_MODELS;
const lacking = lacksPython('torch', 'transformers', 'peft');
const [onnx, gpu] = [new OnnxRuntime(), await WebGpuRuntime.open()];
const program = new URL('./families/reference.py', import.meta.url);
const folder = await mkdtemp(join(tmpdir(), 'families-'));
const rows: string[][] = [];
try {
  const folders = [];
  if (lacking === false) for (const model of wanted) folders.push(await writeModel(model));
  const found = lacking === false ? await runPython(program, 'logits', ...folders) : [];
  for (const [i, model] of wanted.entries()) {
    const row = await rowOf(model, (found as unknown as readonly PythonLogits[])[i] ?? null);
    rows.push(row);
    console.log(row.join('  '));
  }
} finally {
  await rm(folder, { recursive: true });
}
await onnx.close();
await gpu?.close();
if (flags.models === undefined && lacking === false && gpu !== null) await writeSummary();
else console.log(`the page stays as it is: ${lacking || (gpu === null ? 'no GPU' : 'not all models')}`);

/** Logits of every position of the golden batch, as transformers and PEFT compute them. */
type PythonLogits = Readonly<Record<'base' | 'adapted', readonly (readonly (readonly number[])[])[]>>;

/** A golden model, its adapter and its batch as we write them: the folder. */
async function writeModel(model: string): Promise<string> {
  const own = join(folder, model);
  const config = parseConfig(read(model, 'config.json'));
  const lora = goldenLora(model);
  const adapter = await goldenAdapter(model, loraSpecs(config, lora));
  await saveModel(own, { config, base: null, weights: await goldenWeights(model, config), files: {} });
  const adapted = { config: { ...config, lora }, base: own, weights: adapter, files: {} };
  await saveModel(join(own, 'lora'), adapted);
  await writeFile(join(own, 'input.json'), JSON.stringify(goldenBatch(model)));
  return own;
}

async function rowOf(model: string, python: PythonLogits | null): Promise<string[]> {
  const config = parseConfig(read(model, 'config.json'));
  const lora = goldenLora(model);
  const adapted: DecoderConfig = { ...config, lora };
  const weights = await goldenWeights(model, config);
  const adapter = await goldenAdapter(model, loraSpecs(config, lora));
  const parameters = joinParameters(weights, adapter);
  const golden = goldenFamily(model);
  const plain = await evaluate(onnx, model, config, weights, golden.cross_entropy);
  const withAdapter = await evaluate(onnx, model, adapted, parameters, golden.lora);
  const device = gpu && (await evaluate(gpu, model, config, weights, golden.cross_entropy));
  return [
    model.slice('families/'.length),
    shown(goldenLogits(model, plain.logits, config)),
    shown(plain.gradients),
    await greedy(onnx, model, config, weights),
    shown(withAdapter.gradients),
    python === null
      ? '–'
      : shown(
          Math.max(
            lastLogits(model, plain.logits, config, python.base),
            lastLogits(model, withAdapter.logits, config, python.adapted),
          ),
        ),
    device === null ? '–' : shown(goldenLogits(model, device.logits, config)),
    device === null ? '–' : shown(device.gradients),
    gpu === null ? '–' : await greedy(gpu, model, config, weights),
  ];
}

async function evaluate(
  runtime: Runtime,
  model: string,
  config: DecoderConfig,
  parameters: ParameterSource,
  golden: GoldenLoss,
) {
  const batch = goldenBatch(model);
  const trained = config.lora === undefined ? parameterSpecs(config, false) : loraSpecs(config, config.lora);
  const executable = await runtime.compile(buildLoss(config, batch, trained), { parameters });
  const out = await executable.run({
    ids: Int32Array.from(batch.ids.flat()),
    mask: Float32Array.from(batch.mask.flat()),
  });
  const differences = Object.entries(golden.grads).map(([name, gradient]) =>
    gradientDifference(out[name] as Float32Array, gradient),
  );
  return { logits: Float32Array.from(out.logits), gradients: Math.max(...differences) };
}

/** Largest difference of every row's last logits from the golden ones. */
function goldenLogits(model: string, logits: Float32Array, config: DecoderConfig): number {
  const { forward } = goldenFamily(model);
  return overRows(model, logits, config, row => forward[`logits_last_valid_row${row}`]);
}

function lastLogits(
  model: string,
  logits: Float32Array,
  config: DecoderConfig,
  expected: readonly (readonly (readonly number[])[])[],
): number {
  const { mask } = goldenBatch(model);
  return overRows(model, logits, config, row => expected[row][mask[row].lastIndexOf(1)]);
}

function overRows(
  model: string,
  logits: Float32Array,
  { vocabularySize }: DecoderConfig,
  expected: (row: number) => readonly number[],
): number {
  const { mask } = goldenBatch(model);
  const differences = mask.map((own, row) => {
    const start = (row * own.length + own.lastIndexOf(1)) * vocabularySize;
    return largestDifference(logits.subarray(start, start + vocabularySize), expected(row));
  });
  return Math.max(...differences);
}

/** Number of golden tokens that are generated. */
async function greedy(runtime: Runtime, model: string, config: DecoderConfig, parameters: ParameterSource) {
  const { prompt_ids: append, generated_ids } = goldenFamily(model).greedy;
  const engine = new GenerationEngine({
    ...{ config, runtime, parameters, valueHead: false },
    ...{ maxSequenceLength: 96, maxOpenSequences: 1, maxRows: 32 },
  });
  const maxNewTokens = generated_ids.length;
  const sampling = { temperature: 0, topK: 0, topP: 1, maxNewTokens, stopTokenIds: [] };
  const result = new Promise<Generation>((resolve, reject) =>
    engine.submit({ sequenceId: 1, append, sampling, seed: 0 }, resolve, reject),
  );
  result.catch(() => {});
  while (engine.busy) await engine.tick();
  const { tokenIds } = await result;
  const same = generated_ids.findIndex((id, i) => tokenIds[i] !== id);
  return `${same === -1 ? maxNewTokens : same} / ${maxNewTokens}`;
}

function shown(difference: number): string {
  return difference.toExponential(1);
}

/** Writes the largest difference of each column with its model, and the greedy texts that differ. */
async function writeSummary(): Promise<void> {
  const page = await readFile(PAGE, 'utf8');
  const [start, end] = MARKS.map(mark => page.indexOf(mark));
  const lines = HEADER.slice(1).map((title, i) => {
    const cells = rows.map(row => ({ model: row[0], cell: row[i + 1] }));
    if (title.endsWith('greedy'))
      return `- ${title}: ${[...new Set(cells.map(({ cell }) => cell))].join(', ')}\n`;
    const { model, cell } = cells.reduce((most, other) =>
      Number(other.cell) > Number(most.cell) ? other : most,
    );
    return `- ${title}: ${cell} (${model})\n`;
  });
  const text = `Largest of ${rows.length} models:\n\n${lines.join('')}`;
  await writeFile(PAGE, `${page.slice(0, start + MARKS[0].length)}\n${text}\n${page.slice(end)}`);
}

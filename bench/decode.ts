/**
 * Tokens that each decoder program of the CPU samples in a second of processor time on one thread: our WebAssembly kernels
 * against tensor programs in ONNX Runtime between the attentions. Processor time does not count what else the machine does.
 *
 *     npm run bench:decode [-- --rounds 5 --shapes nano,0.8M --batches 1,16,64]
 *
 * Programs take turns, a round each, and the median counts. Weights change before each round, as after an update.
 */

import { Random } from '../shared/random.ts';
import { GenerationEngine } from '../trainer/generation/engine.ts';
import type { DecodeProgramKind } from '../trainer/generation/programs/decode-program.ts';
import type { DecoderConfig } from '../trainer/models/config.ts';
import { initialize, parameterSpecs } from '../trainer/models/parameters.ts';
import { OnnxRuntime } from '../trainer/tensor/runtime/onnx/onnx-runtime.ts';
import { ParameterStore } from '../trainer/tensor/runtime/parameter-store.ts';
import { configOf, type Shape, shapeNamed } from './compute/shapes.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { cpuMsSince, median } from './measuring.ts';

const PROGRAMS: readonly DecodeProgramKind[] = ['kernels', 'segments'];
/** Shapes of `bench/compute/shapes.ts`, and two of its 0.8M shape widened around where the engine changes its program. */
const WIDE: Readonly<Record<string, Partial<Shape>>> = {
  'wide-192': { hidden: 192, heads: 6, keyValueHeads: 6, feedForward: 480 },
  'wide-256': { hidden: 256, heads: 8, keyValueHeads: 8, feedForward: 640 },
};

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    rounds: { type: 'string', default: '3' },
    shapes: { type: 'string', default: 'nano,0.8M,wide-192,wide-256' },
    batches: { type: 'string', default: '1,16,64' },
  },
});
const rounds = positiveInteger('rounds', flags.rounds);

for (const name of flags.shapes.split(',')) {
  const shape = name in WIDE ? { ...shapeNamed('0.8M'), ...WIDE[name] } : shapeNamed(name);
  const config = configOf(shape);
  for (const batch of flags.batches.split(',').map(text => positiveInteger('batches', text))) {
    console.log(`${name} ×${batch}: ${await comparePrograms(config, shape, batch)}`);
  }
}

async function comparePrograms(config: DecoderConfig, shape: Shape, batch: number): Promise<string> {
  const runtime = new OnnxRuntime({ threads: 1 });
  const specs = parameterSpecs(config, false);
  const parameters = new ParameterStore(specs);
  initialize(parameters, specs, config.initializerRange, 1);
  const maxSequenceLength = shape.prompt + shape.generated + 1;
  const options = {
    config,
    valueHead: false,
    runtime,
    parameters,
    maxSequenceLength,
    maxOpenSequences: batch,
  };
  const engines = PROGRAMS.map(program => new GenerationEngine({ ...options, program }));
  const seconds: number[][] = engines.map(() => []);
  for (let round = 0; round <= rounds; round++) {
    for (const [i, engine] of engines.entries()) {
      parameters.touch();
      engine.weightsChanged(round);
      const started = process.cpuUsage();
      await sampleBatch(engine, shape, batch);
      // The first round compiles.
      if (round > 0) seconds[i].push(cpuMsSince(started) / 1000);
    }
  }
  await runtime.close();
  const rates = seconds.map(times => (batch * shape.generated) / median(times));
  const shown = PROGRAMS.map((program, i) => `${program} ${rates[i].toFixed(0)}`).join(', ');
  return `${shown} tokens/s, ratio ${(rates[0] / rates[1]).toFixed(2)}`;
}

async function sampleBatch(engine: GenerationEngine, shape: Shape, batch: number): Promise<void> {
  const rng = Random.fromSeed(2);
  const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: shape.generated, stopTokenIds: [] };
  const all = Array.from({ length: batch }, (_, sequenceId) => {
    const append = Int32Array.from({ length: shape.prompt }, () => rng.integer(shape.vocabulary));
    return new Promise((resolve, reject) =>
      engine.submit({ sequenceId, append, sampling, seed: sequenceId }, resolve, reject),
    );
  });
  while (engine.busy) await engine.tick();
  await Promise.all(all);
  for (let sequenceId = 0; sequenceId < batch; sequenceId++) engine.release(sequenceId);
}

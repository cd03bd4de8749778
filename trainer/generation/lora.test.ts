import t from 'tap';
import { Random } from '../../shared/random.ts';
import { squaredNorms } from '../models/adapters/dora.ts';
import { scratchConfig } from '../models/config.ts';
import { decoderHidden, decoderLogits } from '../models/decoder.ts';
import { loraSpecs, parameterSpecs } from '../models/parameters.ts';
import { rightPadded } from '../models/sequence-layout.ts';
import { GraphBuilder } from '../tensor/graph/graph.ts';
import { OnnxRuntime } from '../tensor/runtime/onnx/onnx-runtime.ts';
import { joinParameters, ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { GenerationEngine } from './engine.ts';
import type { Generation } from './generation.ts';

const runtime = new OnnxRuntime();
t.after(() => runtime.close());

const plain = {
  rank: 2,
  alpha: 6,
  rankStabilized: false,
  dora: false,
  modules: ['q_proj', 'o_proj', 'up_proj'] as const,
};
const shape = scratchConfig({ vocabularySize: 20, hiddenSize: 32, heads: 4, keyValueHeads: 2, layers: 2 });
const rng = Random.fromSeed(4);
const base = filled(new ParameterStore(parameterSpecs(shape, false)));

function filled(store: ParameterStore): ParameterStore {
  for (const { name } of store.layout) {
    const array = store.array(name);
    const mean = name.includes('norm') ? 1 : 0;
    for (let i = 0; i < array.length; i++) array[i] = mean + 0.3 * rng.normal();
  }
  return store;
}

const prompt = [3, 1, 4, 1, 5, 9, 2, 6];

async function continued(engine: GenerationEngine): Promise<Generation> {
  const done = new Promise<Generation>((resolve, reject) => {
    const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 12, stopTokenIds: [] };
    engine.submit({ sequenceId: 1, append: prompt, sampling, seed: 2 }, resolve, reject);
  });
  while (engine.busy) await engine.tick();
  engine.release(1);
  return done;
}

for (const [program, dora] of [
  ['kernels', false],
  ['segments', false],
  ['kernels', true],
  ['segments', true],
] as const) {
  const what = `${program} sample with the adapter${dora ? ' of DoRA' : ''}, and with the new one after an update`;
  t.test(what, async t => {
    const lora = { ...plain, dora };
    const config = { ...shape, lora };
    const adapter = filled(new ParameterStore(loraSpecs(shape, lora)));
    const norms = squaredNorms(config, base);
    const parameters = joinParameters(...(norms === null ? [] : [norms]), base, adapter);
    const engine = new GenerationEngine({
      config,
      valueHead: false,
      runtime,
      parameters,
      program,
      maxSequenceLength: 64,
      maxOpenSequences: 2,
    });
    const time = prompt.length + 12;
    const g = new GraphBuilder();
    const ids = g.input('ids', 'int32', [1, time]);
    const hidden = decoderHidden(g, config, ids, rightPadded(g, config, 1, time));
    g.output('logProbs', g.logSoftmax(decoderLogits(g, config, hidden)));
    const full = await runtime.compile(g.build(), { parameters });
    const first = adapter.flat.slice();
    const seen: number[][] = [];
    for (const factor of [1, -1]) {
      adapter.flat.set(first.map(x => factor * x));
      for (const { name } of adapter.layout) if (name.includes('lora_A')) adapter.array(name).fill(0.2);
      adapter.touch();
      engine.weightsChanged(factor);
      const { tokenIds, logProbs } = await continued(engine);
      seen.push([...tokenIds]);
      const out = await full.run({ ids: Int32Array.from([...prompt, ...tokenIds]) });
      logProbs.forEach((logProb, i) => {
        const at = (prompt.length + i - 1) * shape.vocabularySize + tokenIds[i];
        t.ok(Math.abs(logProb - out.logProbs[at]) < 1e-4, `log-probability of token ${i}`);
      });
    }
    t.notSame(seen[0], seen[1]);
  });
}

import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { scratchConfig } from '../../models/config.ts';
import { loraSpecs, parameterSpecs } from '../../models/parameters.ts';
import { OnnxRuntime } from '../../tensor/runtime/onnx/onnx-runtime.ts';
import { joinParameters, ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { Runtime } from '../../tensor/runtime/runtime.ts';
import { WebGpuRuntime } from '../../tensor/runtime/webgpu/webgpu-runtime.ts';
import { GenerationEngine } from '../engine.ts';
import type { Generation } from '../generation.ts';

const onnx = new OnnxRuntime();
const gpu = await WebGpuRuntime.open();
t.after(async () => {
  await gpu?.close();
  await onnx.close();
});
const onGpu = { skip: gpu === null ? 'no GPU here that Dawn can use' : false };

const lora = {
  rank: 2,
  alpha: 6,
  rankStabilized: false,
  dora: false,
  modules: ['q_proj', 'v_proj', 'down_proj'] as const,
};
const shape = scratchConfig({ vocabularySize: 20, hiddenSize: 32, heads: 4, keyValueHeads: 2, layers: 2 });
const prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3];
const NEW_TOKENS = 10;
/** Number of the ten tokens that come before the weights change. */
const BEFORE = 4;

function fill(store: ParameterStore, seed: number): ParameterStore {
  const rng = Random.fromSeed(seed);
  for (const { name } of store.layout) {
    const array = store.array(name);
    for (let i = 0; i < array.length; i++) array[i] = Number(name.includes('norm')) + 0.3 * rng.normal();
  }
  store.touch();
  return store;
}

const base = fill(new ParameterStore(parameterSpecs(shape, false)), 1);
/** An adapter that learns, and two states of it; off is what a fresh one is. */
const adapters = () => new ParameterStore(loraSpecs(shape, lora));
const on = fill(adapters(), 2).flat;
const changed = fill(adapters(), 3).flat;
const off = new Float32Array(on.length);

interface Continued extends Generation {
  readonly statistics: string;
}

/** Ten tokens; after the fourth the adapter becomes `second`. */
async function continued(
  runtime: Runtime,
  first: Float32Array,
  second: Float32Array,
  keepStaleCache: boolean,
): Promise<Continued> {
  const adapter = adapters();
  const take = (values: Float32Array) => {
    adapter.flat.set(values);
    adapter.touch();
  };
  take(first);
  const engine = new GenerationEngine({
    config: { ...shape, lora },
    valueHead: false,
    runtime,
    parameters: joinParameters(base, adapter),
    maxSequenceLength: 64,
    maxOpenSequences: 2,
  });
  const done = new Promise<Generation>((resolve, reject) => {
    const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: NEW_TOKENS, stopTokenIds: [] };
    engine.submit({ sequenceId: 1, append: prompt, sampling, seed: 2 }, resolve, reject);
  });
  while (engine.statistics.sampled < BEFORE) await engine.tick();
  take(second);
  engine.weightsChanged(1, keepStaleCache);
  while (engine.busy) await engine.tick();
  return { ...(await done), statistics: JSON.stringify(engine.statistics) };
}

function sameAs(t: Tap, given: Continued, wanted: Continued, what: string): void {
  t.same(given.tokenIds, wanted.tokenIds, `tokens, ${what}`);
  const worst = Math.max(...given.logProbs.map((x, i) => Math.abs(x - wanted.logProbs[i])));
  t.ok(worst < 1e-4, `log-probabilities, ${what}: ${worst}`);
  t.equal(given.statistics, wanted.statistics, `what was computed, ${what}`);
}
type Tap = typeof t;

t.test(
  'an adapter on a device samples as on the processor, on, off and changed between tokens',
  onGpu,
  async t => {
    for (const [what, first, second, stale] of [
      ['on', on, on, false],
      ['changed', on, changed, false],
      ['changed, continued from the old cache', on, changed, true],
      ['turned off', on, off, false],
    ] as const) {
      const [given, wanted] = [
        await continued(gpu!, first, second, stale),
        await continued(onnx, first, second, stale),
      ];
      sameAs(t as Tap, given, wanted, what);
      t.same([...given.versions], [...Array(BEFORE).fill(0), ...Array(NEW_TOKENS - BEFORE).fill(1)], what);
    }
  },
);

t.test('an adapter that is off leaves the base on a device unchanged', onGpu, async t => {
  const given = await continued(gpu!, off, off, false);
  const plain = new GenerationEngine({
    config: shape,
    valueHead: false,
    runtime: gpu!,
    parameters: base,
    maxSequenceLength: 64,
    maxOpenSequences: 2,
  });
  const wanted = await new Promise<Generation>((resolve, reject) => {
    const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: NEW_TOKENS, stopTokenIds: [] };
    plain.submit({ sequenceId: 1, append: prompt, sampling, seed: 2 }, resolve, reject);
    void (async () => {
      while (plain.busy) await plain.tick();
    })();
  });
  t.same(given.tokenIds, wanted.tokenIds);
  t.same(given.logProbs, wanted.logProbs, 'to the bit: adding 0 changes nothing');
  t.notSame((await continued(gpu!, on, on, false)).logProbs, wanted.logProbs);
});

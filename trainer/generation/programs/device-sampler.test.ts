import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { GraphBuilder } from '../../tensor/graph/graph.ts';
import type { Runtime } from '../../tensor/runtime/runtime.ts';
import { KernelCpuRuntime } from '../../tensor/runtime/webgpu/cpu-runtime.test-data.ts';
import { WebGpuRuntime } from '../../tensor/runtime/webgpu/webgpu-runtime.ts';
import type { SamplingSettings } from '../generation.ts';
import { type CompiledGrammar, compileGrammar } from '../grammar.ts';
import { Sampler } from '../sampling.ts';
import { DeviceSampler } from './device-program.ts';

const runtimes: readonly (readonly [string, Runtime | null])[] = [
  ['WebGPU', await WebGpuRuntime.open()],
  ['gpu.js cpu', new KernelCpuRuntime()],
];
t.after(async () => {
  for (const [, runtime] of runtimes) await runtime?.close();
});

const plain: SamplingSettings = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 1, stopTokenIds: [] };
const CHANGES: readonly Partial<SamplingSettings>[] = [
  {},
  { temperature: 0.5 },
  { temperature: 1.7, topK: 40 },
  { topP: 0.9 },
  { topK: 300, topP: 0.5 },
  { topK: 1 },
  { temperature: 0 },
  { minP: 0.2 },
  { temperature: 2, topK: 30, topP: 0.8, minP: 0.3 },
  { minP: 1 },
];
const UNCHANGED = { processor: null, topLogProbs: undefined } as const;

/** Logits like a language model's: a few tokens stand out. */
function logitsOf(rows: number, width: number): Float32Array {
  const rng = Random.fromSeed(width);
  return Float32Array.from({ length: rows * width }, () => 2.5 * rng.normal());
}

async function deviceSamplerOn(
  runtime: Runtime,
  width: number,
  rows: number,
  grammars: ReadonlyMap<string, CompiledGrammar>,
) {
  const deviceSampler = DeviceSampler.create(width, grammars, rows)!;
  const g = new GraphBuilder();
  const { inputs, outputs } = deviceSampler.build(g, g.input('logits', 'float32', [rows, width]));
  const executable = await runtime.compile(g.build(), { outputs });
  return { deviceSampler, run: (logits: Float32Array) => executable.run({ ...inputs, logits }) };
}

for (const [place, runtime] of runtimes) {
  const options = { skip: runtime === null ? 'no GPU here that Dawn can use' : false };
  t.test(`tokens sampled on ${place} are those that are sampled here`, options, async t => {
    for (const width of [7, 300]) {
      const rows = 6 * CHANGES.length;
      const logits = logitsOf(rows, width);
      const sampler = new Sampler(width);
      const { deviceSampler, run } = await deviceSamplerOn(runtime!, width, rows, new Map());
      const settings = (row: number) => ({ ...plain, ...CHANGES[row % CHANGES.length] });
      for (let row = 0; row < rows; row++) {
        const rng = Random.fromSeed(row);
        deviceSampler.set(row, {
          sampling: settings(row),
          rng,
          grammar: null,
          grammarState: 0,
          ...UNCHANGED,
        });
      }
      await run(logits);
      for (let row = 0; row < rows; row++) {
        const wanted = { ...sampler.sample(logits, row * width, settings(row), Random.fromSeed(row)) };
        const given = deviceSampler.get(row);
        t.equal(given.token, wanted.token, `token of row ${row} of ${width}`);
        t.ok(Math.abs(given.logProb - wanted.logProb) < 1e-5, `log-probability of row ${row} of ${width}`);
      }
    }
  });

  t.test(`grammars hold on ${place}, and a NaN is an error`, options, async t => {
    const [width, rows] = [12, 30];
    const states = [
      { tokens: [3, 4, 5], next: [1, 1, 1] },
      { tokens: [7, 11], next: [0, 0] },
    ];
    const grammar = compileGrammar('answer', { start: 0, states }, width);
    const logits = logitsOf(rows, width);
    const sampler = new Sampler(width);
    const { deviceSampler, run } = await deviceSamplerOn(
      runtime!,
      width,
      rows,
      new Map([['answer', grammar]]),
    );
    for (let row = 0; row < rows; row++) {
      const rng = Random.fromSeed(row);
      deviceSampler.set(row, {
        sampling: plain,
        rng,
        grammar: row % 3 === 0 ? null : grammar,
        grammarState: row % 2,
        ...UNCHANGED,
      });
    }
    logits[5 * width + 1] = Number.NaN;
    await run(logits);
    for (let row = 0; row < rows; row++) {
      if (row === 5) {
        t.throws(() => deviceSampler.get(row), /no token can be sampled: logits are NaN/);
        continue;
      }
      const allowed = row % 3 === 0 ? null : grammar.allowedIn(row % 2);
      const rng = Random.fromSeed(row);
      const wanted = sampler.sample(logits, row * width, plain, rng, { allowed });
      const given = deviceSampler.get(row);
      t.equal(given.token, wanted.token, `token of row ${row}`);
      t.ok(Math.abs(given.logProb - wanted.logProb) < 1e-5, `log-probability of row ${row}`);
    }
  });
}

t.test('grammars too large for a device leave the sampling to the processor', async t => {
  const grammar = compileGrammar('a', { start: 0, states: [{ tokens: [], next: [] }] }, 2 ** 20);
  t.equal(DeviceSampler.create(2 ** 20, new Map([['a', grammar]]), 4), null);
});

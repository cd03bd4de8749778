import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import { play, settingsWith } from '../../policy/policies.test-data.ts';
import { goldenFolder } from '../../serve/serve.test-data.ts';
import type { EngineCall } from './engine-client.ts';
import { sglangEngine } from './engines.test-data.ts';
import { SglangEngine } from './engines.ts';
import {
  CONTEXT,
  ENGINE_MS,
  generatorOf,
  largestGap,
  policyOf,
  REPLY_MS,
  ROUNDING,
  serveEngine,
} from './installed-engines.test-data.ts';

/** A Python that has SGLang and what it needs without a GPU; `npm run test:parts` installs one and names it. */
const PYTHON = process.env.RAGEN_SGLANG;
const skip =
  PYTHON === undefined &&
  'needs a Python with sglang in RAGEN_SGLANG: npm run test:parts installs it and runs this test with it';
const TIMEOUT_MS = 60_000;
const SCRIPT = join(import.meta.dirname, 'sglang.test-data.py');
const STAND_INS = join(import.meta.dirname, 'sglang-stand-ins.test-data.py');

/** Faults that SGLang's source finds in requests and in a reply. */
function held(requests: readonly (readonly [string, unknown])[], reply: unknown): Record<string, unknown> {
  const input = JSON.stringify({ requests, reply });
  const { stdout, stderr } = spawnSync(PYTHON!, [SCRIPT], { input, encoding: 'utf8', timeout: TIMEOUT_MS });
  if (stdout === '') throw new Error(stderr);
  return JSON.parse(stdout) as Record<string, unknown>;
}

t.test("requests are what SGLang's source takes, and its replies what is read", { skip }, async t => {
  const engine = await sglangEngine(t);
  const { signal } = new AbortController();
  const sampling = {
    ...{ temperature: 0.7, topK: 5, topP: 0.9, minP: 0.1, maxNewTokens: 4, stopTokenIds: [1, 2] },
    ...{ repetitionPenalty: 1.1, presencePenalty: 0.5, frequencyPenalty: -0.5, logitBias: { 7: 1.5 } },
    stopStrings: ['</answer>'],
  };
  const call: EngineCall = { promptIds: [1, 2, 3], sampling, seed: 2 ** 40, weights: null };
  for (const adapters of [true, false]) {
    const client = new SglangEngine({ url: engine.url, timeoutMs: TIMEOUT_MS }, adapters);
    t.teardown(() => client.close());
    await client.probe(signal);
    const name = adapters ? 'adapter' : 'whole';
    await client.load(name, goldenFolder(adapters ? 'qwen2-tiny/lora' : 'qwen2-tiny'), signal);
    await client.generate({ ...call, weights: name }, signal);
    await client.unload(name, signal);
  }
  const requests = engine.bodies.map(({ path, body }) => [path, body] as const);
  t.same(
    new Set(requests.map(([route]) => route)),
    new Set(['/generate', '/load_lora_adapter', '/unload_lora_adapter', '/update_weights_from_disk']),
  );
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify(requests.at(-1)![1]);
  const reply = await (await fetch(`${engine.url}/generate`, { method: 'POST', headers, body })).json();
  t.same(held(requests, reply), {
    version: '0.5.23',
    wrong: [],
    tokens: 4,
    finish: 'FinishLength',
    weights: 'whole',
  });
  const refused = held(
    [
      ['/generate', { input_ids: [1], sampling_params: { bad_words: ['a'] } }],
      ['/generate', { input_ids: [1], sampling_params: { top_k: 0 } }],
      ['/load_lora_adapter', { lora_name: 'a', lora_folder: '/' }],
    ],
    reply,
  );
  t.match(refused.wrong, [/bad_words/, /top_k must be -1/, /knows no lora_folder/, /lacks lora_path/]);
});

/** SGLang's server of a folder, on the processor. @returns its address when it answers */
function serve(t: Test, model: string, ...more: readonly (string | number)[]): Promise<string> {
  const modules = t.testdir({ 'sitecustomize.py': readFileSync(STAND_INS, 'utf8') });
  const plain = ['--disable-cuda-graph', '--disable-overlap-schedule', '--skip-server-warmup'];
  const backends = ['--attention-backend', 'torch_native', '--sampling-backend', 'pytorch'];
  const sizes = ['--context-length', CONTEXT, '--max-total-tokens', 4096, '--mem-fraction-static', 0.2];
  const flags = ['--device', 'cpu', '--dtype', 'float32', ...backends, ...plain, ...sizes];
  const args = ['-m', 'sglang.launch_server', '--model-path', model, ...flags, ...more];
  return serveEngine(t, PYTHON!, args, { SGLANG_USE_CPU_ENGINE: '1', PYTHONPATH: modules });
}

const engineOf = (url: string, adapters: boolean) => new SglangEngine({ url, timeoutMs: REPLY_MS }, adapters);

t.test('the real SGLang', { skip, timeout: 2 * ENGINE_MS }, async t => {
  const folder = mkdtempSync(join(tmpdir(), 'ragen-sglang-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  // Adapters of a family that SGLang lacks, such as that of a policy from scratch, end its server on the processor.
  const base = goldenFolder('qwen2-tiny');
  const start = await policyOf({ model: base });
  t.teardown(() => start.close());

  await t.test('SGLang samples adapters of a checkpoint as it is', { timeout: ENGINE_MS }, async t => {
    const lora = ['--enable-lora', '--max-lora-rank', 8, '--lora-target-modules', 'all'];
    const url = await serve(t, base, ...lora, '--lora-backend', 'torch_native');
    const form: LoraConfig = {
      rank: 4,
      alpha: 8,
      rankStabilized: false,
      dora: false,
      // Without all of a product that SGLang joins, it refuses the adapter or leaves a part of it out.
      modules: ['q_proj', 'k_proj', 'v_proj', 'gate_proj', 'up_proj'],
    };
    const adapted = await policyOf({ model: base, lora: form });
    t.teardown(() => adapted.close());
    const generator = generatorOf(t, engineOf(url, true));
    await generator.probe();
    for (const version of [1, 2]) {
      await adapted.update({ sequences: await play(adapted, 6) }, settingsWith({}, { learningRate: 1e-2 }));
      const place = join(folder, `adapter-${version}`);
      await adapted.publish(place);
      await generator.publish(version, `run-v${version}`, place);
      for (const temperature of [1, 0.5]) {
        const gap = await largestGap(generator, adapted, temperature);
        t.ok(gap < ROUNDING, `version ${version} at ${temperature}: ${gap}`);
      }
    }
    t.ok((await largestGap(generator, start, 1)) > 10 * ROUNDING, 'it learned enough to be distinguished');
    const metrics = generator.takeMetrics();
    t.equal(metrics['generation/engine_0/failures'], 0);
    t.equal(metrics['generation/engine_0/versions'], 1, 'older versions are unloaded');
    const wide = await policyOf({ model: base, lora: { ...form, rank: 16 } });
    t.teardown(() => wide.close());
    await wide.publish(join(folder, 'wide'));
    const refused = generatorOf(t, engineOf(url, true)).publish(1, 'wide', join(folder, 'wide'));
    await t.rejects(refused, { name: 'EngineError', message: /rank|incompatible/i });
    const engine = engineOf(url, true);
    await engine.unload('never-loaded', new AbortController().signal);
    await engine.close();
  });

  await t.test('SGLang takes whole weights', { timeout: ENGINE_MS }, async t => {
    const url = await serve(t, base);
    const learner = await policyOf({ model: base });
    t.teardown(() => learner.close());
    const generator = generatorOf(t, engineOf(url, false));
    await generator.probe();
    for (const version of [1, 2]) {
      await learner.update({ sequences: await play(learner, 6) }, settingsWith({}, { learningRate: 1e-2 }));
      const place = join(folder, `whole-${version}`);
      await learner.publish(place);
      await generator.publish(version, `run-v${version}`, place);
      for (const temperature of [1, 0.5]) {
        const gap = await largestGap(generator, learner, temperature);
        t.ok(gap < ROUNDING, `whole weights of version ${version} at ${temperature}: ${gap}`);
      }
    }
    t.ok((await largestGap(generator, start, 1)) > 10 * ROUNDING, 'it learned enough to be distinguished');
    const hasty = generatorOf(t, engineOf(url, false), 5_000);
    await t.rejects(hasty.publish(3, 'run-v3', join(folder, 'none')), /./);
    await generator.publish(4, 'run-v4', join(folder, 'whole-2'));
    t.ok(
      (await largestGap(generator, learner, 1)) < ROUNDING,
      'a failed load leaves an engine that loads again',
    );
  });
});

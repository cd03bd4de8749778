import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import t from 'tap';
import { goldenFolder } from '../../serve/serve.test-data.ts';
import type { EngineCall } from './engine-client.ts';
import { sglangEngine } from './engines.test-data.ts';
import { SglangEngine } from './sglang-engine.ts';

/** A Python that has the package sglang, without those that it needs to run; `npm run test:parts` installs one and names it. */
const PYTHON = process.env.RAGEN_SGLANG;
const skip =
  PYTHON === undefined &&
  'needs a Python with sglang in RAGEN_SGLANG: npm run test:parts installs it and runs this test with it';
const TIMEOUT_MS = 60_000;
const SCRIPT = join(import.meta.dirname, 'sglang.test-data.py');

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

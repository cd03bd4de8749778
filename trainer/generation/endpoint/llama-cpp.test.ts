import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { freePort } from '../../../test/free-port.test-data.ts';
import { lacksSmollm2, SMOLLM2 } from '../../models/gguf/gguf.test-data.ts';
import { loadTokenizer } from '../../models/tokenizer/load.ts';
import { LocalPolicy } from '../../policy/local-policy.ts';
import { Completions } from './completions.ts';

/** A Python that has llama-cpp-python with its server; `npm run test:parts` installs one and names it. */
const PYTHON = process.env.RAGEN_LLAMA_CPP;
const SERVER = fileURLToPath(new URL('llama-cpp.test-data.py', import.meta.url));
const MAX_MS = 300_000;

const lacksServer = PYTHON
  ? false
  : 'needs llama-cpp-python[server]: RAGEN_LLAMA_CPP=<python>, as npm run test:parts';

t.test(
  "llama.cpp's server answers an evaluation's requests as the same file does here",
  { skip: lacksServer || lacksSmollm2, timeout: MAX_MS },
  async t => {
    const port = await freePort();
    const flags = ['--model', SMOLLM2, '--host', '127.0.0.1', '--port', String(port), '--n_ctx', '512'];
    const child = spawn(PYTHON!, [SERVER, ...flags, '--n_threads', '1', '--chat_format', 'chatml'], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let said = '';
    const ready = new Promise<void>((resolve, reject) => {
      child.stderr.setEncoding('utf8').on('data', (text: string) => {
        said = (said + text).slice(-10_000);
        if (said.includes('Uvicorn running')) resolve();
      });
      child.once('exit', code => reject(new Error(`the server ended with ${code}: ${said}`)));
      child.once('error', reject);
    });
    t.teardown(async () => {
      if (child.exitCode !== null) return;
      const ended = new Promise(resolve => child.once('exit', resolve));
      child.kill('SIGKILL');
      await ended;
    });
    await ready;
    const settings = {
      url: `http://127.0.0.1:${port}/v1`,
      model: 'smollm2',
      concurrency: 2,
      requestsPerMinute: null,
      tokensPerMinute: null,
      attempts: 2,
      timeoutMs: MAX_MS,
      sendStopStrings: false,
      continueFinalMessage: false,
      maxTokensKey: 'max_tokens' as const,
      extra: {},
    };
    const completions = new Completions(settings);
    t.teardown(() => completions.close());
    const system = 'You answer in one short sentence.';
    const question = 'What is the capital of France?';
    const messages = [
      { role: 'system', content: system },
      { role: 'user', content: question },
    ] as const;
    const sampling = { temperature: 0, topK: 0, topP: 1, maxNewTokens: 12, stopTokenIds: [] };
    const ask = (stopStrings: readonly string[], of = completions) =>
      of.complete({ messages, prime: '', maxTokens: 12, sampling, seed: 1, stopStrings });
    const there = await ask([]);
    t.match(there.text, /Paris/);
    t.ok(completions.usage.completionTokens > 0);
    const stopped = await ask(['Paris']);
    t.match(stopped.text, /Paris$/, 'the text is cut here, behind the stop string');
    const sending = new Completions({ ...settings, sendStopStrings: true });
    t.teardown(() => sending.close());
    await t.rejects(ask(['Paris'], sending), /set endpoint.send_stop_strings=false/);

    const tokenizer = await loadTokenizer(SMOLLM2);
    const policy = await LocalPolicy.create({
      model: SMOLLM2,
      seed: 0,
      valueHead: false,
      workers: 1,
      maxSequenceLength: 512,
      generationOnly: true,
    });
    t.teardown(() => policy.close());
    t.match(policy.description, /in the blocks of their file/);
    const turns = [...messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`)];
    const prompt = tokenizer.encode(`${turns.join('')}<|im_start|>assistant\n`);
    const stopTokenIds = tokenizer.encode('<|im_end|>');
    const here = await policy.generate({
      sequenceId: 1,
      append: Int32Array.from(prompt),
      sampling: { ...sampling, stopTokenIds: [...stopTokenIds] },
      seed: 1,
    });
    const text = tokenizer.decode(here.tokenIds.filter(id => !stopTokenIds.includes(id)));
    t.equal(text.trim(), there.text.trim(), 'greedily, the same text');
  },
);

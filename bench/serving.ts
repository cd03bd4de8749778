/**
 * Tokens a second and time to the first token of `ragen serve` under a number of concurrent clients, as a share of the same
 * policy called in process with as many sequences at once. The server is a separate process on this machine; server and clients share
 * its cores.
 *
 *     npm run bench:serving [-- --shape 0.8M --streams 1,8,32,128 --rounds 3]
 *
 * Where a Python with torch and transformers is found (RAGEN_PYTHON), its generate loop over a batch is measured, too.
 */

import { spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Agent, request } from 'undici';
import { Random } from '../shared/random.ts';
import { buildWordTokenizer } from '../trainer/models/tokenizer/builder.ts';
import { LocalPolicy } from '../trainer/policy/local-policy.ts';
import { configOf, type Shape, shapeNamed } from './compute/shapes.ts';
import { positiveInteger } from './flags.ts';
import { median } from './median.ts';
import { startServe } from './serve-process.ts';

const TRANSFORMERS = fileURLToPath(new URL('serving/transformers_generate.py', import.meta.url));
const SPECIAL_TOKENS = 3;

const { values: flags } = parseArgs({
  options: {
    shape: { type: 'string', default: '0.8M' },
    streams: { type: 'string', default: '1,8,32,128' },
    rounds: { type: 'string', default: '3' },
    workers: { type: 'string', default: '2' },
  },
});
const shape = shapeNamed(flags.shape);
const rounds = positiveInteger('rounds', flags.rounds);
const workers = positiveInteger('workers', flags.workers);

/** Prompts of random tokens, new ones each round so that no cache helps. */
function prompts(count: number, round: number): number[][] {
  const rng = Random.fromSeed(1000 * round + count);
  return Array.from({ length: count }, () =>
    Array.from(
      { length: shape.prompt },
      () => SPECIAL_TOKENS + rng.integer(shape.vocabulary - SPECIAL_TOKENS),
    ),
  );
}

interface Measured {
  readonly tokensPerSecond: number;
  /** Milliseconds, median over requests; NaN where replies are not streamed. */
  readonly firstTokenMs: number;
}

/** Requests of each client in a round: a client sends the next when the last is answered. */
const PER_CLIENT = 4;

async function clients(streams: number, round: number, ask: Ask): Promise<Measured> {
  const all = prompts(streams * PER_CLIENT, round);
  const firsts: number[] = [];
  const started = performance.now();
  await Promise.all(
    Array.from({ length: streams }, async (_, client) => {
      for (let i = 0; i < PER_CLIENT; i++) firsts.push(await ask(all[client * PER_CLIENT + i], client));
    }),
  );
  const seconds = (performance.now() - started) / 1000;
  return { tokensPerSecond: (all.length * shape.generated) / seconds, firstTokenMs: median(firsts) };
}

const sampling = {
  temperature: 1,
  topK: 0,
  topP: 1,
  maxNewTokens: shape.generated,
  stopTokenIds: [],
};

/** A way to get responses: milliseconds to the first token, or NaN where that is not seen. */
type Ask = (prompt: number[], seed: number) => Promise<number>;

/** Rates of several ways that take turns, a round each, so that what else the machine does meets them alike. */
async function compare(streams: number, asks: readonly Ask[]): Promise<Measured[]> {
  const results: Measured[][] = asks.map(() => []);
  // The first round compiles and warms up.
  for (let round = 0; round <= rounds; round++) {
    for (const [i, ask] of asks.entries()) {
      const measured = await clients(streams, round * asks.length + i, ask);
      if (round > 0) results[i].push(measured);
    }
  }
  return results.map(kept => ({
    tokensPerSecond: median(kept.map(result => result.tokensPerSecond)),
    firstTokenMs: median(kept.map(result => result.firstTokenMs)),
  }));
}

async function main(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'ragen-serving-'));
  try {
    await writeModel(folder, shape);
    const counts = flags.streams.split(',').map(text => positiveInteger('streams', text));
    console.log(
      `${shape.name}: prompts of ${shape.prompt}, responses of ${shape.generated} tokens, ${workers} workers`,
    );
    await measure(folder, counts);
    measureTransformers(folder, counts);
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function writeModel(folder: string, { vocabulary }: Shape): Promise<void> {
  const words = Array.from({ length: vocabulary - SPECIAL_TOKENS }, (_, i) => `w${i}.`);
  const tokenizer = buildWordTokenizer(words);
  const policy = await LocalPolicy.create({
    model: { ...configOf(shape), eosTokenId: null },
    seed: 1,
    workers: 1,
    valueHead: false,
    files: tokenizer.files,
  });
  await policy.save(folder);
  await policy.close();
}

async function measure(folder: string, counts: readonly number[]): Promise<void> {
  const context = shape.prompt + shape.generated + 1;
  const policy = await LocalPolicy.create({
    model: folder,
    seed: 0,
    workers,
    valueHead: false,
    generationOnly: true,
    maxOpenSequences: 256,
    maxSequenceLength: context,
  });
  let sequenceId = 0;
  const here: Ask = async (append, seed) => {
    const id = sequenceId++;
    await policy.generate({ sequenceId: id, append, sampling, seed });
    policy.release(id);
    return Number.NaN;
  };
  const args = ['--context', String(context), '--workers', String(workers)];
  const { url, child } = await startServe(folder, args);
  const dispatcher = new Agent({ connections: 256 });
  try {
    const whole: Ask = (prompt, seed) => complete(url, prompt, seed, false, dispatcher);
    const streamed: Ask = (prompt, seed) => complete(url, prompt, seed, true, dispatcher);
    for (const streams of counts) {
      const [local, served, events] = await compare(streams, [here, whole, streamed]);
      const shown = ({ tokensPerSecond }: Measured) =>
        `${tokensPerSecond.toFixed(0)} tokens/s (${(tokensPerSecond / local.tokensPerSecond).toFixed(2)})`;
      console.log(
        `×${streams}: in process ${local.tokensPerSecond.toFixed(0)} tokens/s, served ${shown(served)}, ` +
          `streamed ${shown(events)}, first token after ${events.firstTokenMs.toFixed(1)} ms`,
      );
    }
  } finally {
    child.kill();
    await dispatcher.close();
    await policy.close();
  }
}

/** Milliseconds to the first token of a streamed reply. */
async function complete(
  url: string,
  prompt: number[],
  seed: number,
  stream: boolean,
  dispatcher: Agent,
): Promise<number> {
  const started = performance.now();
  const { statusCode, body } = await request(`${url}/v1/completions`, {
    method: 'POST',
    dispatcher,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ prompt, seed, max_tokens: shape.generated, ignore_eos: true, stream }),
  });
  let first = Number.NaN;
  for await (const _ of body) if (Number.isNaN(first)) first = performance.now() - started;
  if (statusCode !== 200) throw new Error(`status ${statusCode}`);
  return stream ? first : Number.NaN;
}

function measureTransformers(folder: string, counts: readonly number[]): void {
  const python = process.env.RAGEN_PYTHON ?? 'python3';
  const args = [TRANSFORMERS, folder, String(shape.prompt), String(shape.generated), counts.join()];
  const { status, stdout } = spawnSync(python, args, { encoding: 'utf8' });
  console.log(
    status === 0 ? stdout.trimEnd() : `transformers: not measured, ${python} has no torch and transformers`,
  );
}

await main();

/**
 * Tokens a second and time to the first token of `ragen serve` under a number of concurrent clients, as a share of the same
 * policy called in process with as many sequences at once. The server is a separate process on this machine; server and clients share
 * its cores.
 *
 *     npm run bench:serving [-- --shape 0.8M --streams 1,8,32,128 --rounds 3 --workers 2]
 *
 * Where a Python with torch and transformers is found (RAGEN_PYTHON), its generate loop over a batch takes turns with them.
 * Shares are of the policy in process in the same round, median over the rounds.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Agent, request } from 'undici';
import { Random } from '../shared/random.ts';
import { buildWordTokenizer } from '../trainer/models/tokenizer/builder.ts';
import { LocalPolicy } from '../trainer/policy/local-policy.ts';
import { configOf, type Shape, shapeNamed } from './compute/shapes.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { median } from './median.ts';
import { startServe } from './serve-process.ts';
import { startTransformers, type TransformersProcess } from './serving/transformers.ts';

const SPECIAL_TOKENS = 3;

const { values: flags } = scriptFlags(import.meta.filename, {
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

/** Answers prompts of so many streams, other ones in every round. */
type Way = (streams: number, round: number) => Promise<Measured>;

interface Compared extends Measured {
  /** Tokens a second as a share of the first way's in the same round, median over the rounds. */
  readonly share: number;
}

/** Several ways that take turns, a round each, so that what else the machine does meets them alike. */
async function compare(streams: number, ways: readonly Way[]): Promise<Compared[]> {
  const results: Measured[][] = ways.map(() => []);
  // The first round compiles and warms up.
  for (let round = 0; round <= rounds; round++) {
    for (const [i, way] of ways.entries()) {
      const measured = await way(streams, round * ways.length + i);
      if (round > 0) results[i].push(measured);
    }
  }
  const [first] = results;
  return results.map(kept => ({
    tokensPerSecond: median(kept.map(result => result.tokensPerSecond)),
    firstTokenMs: median(kept.map(result => result.firstTokenMs)),
    share: median(kept.map((result, round) => result.tokensPerSecond / first[round].tokensPerSecond)),
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
    const transformers = await startTransformers(folder, shape.prompt, shape.generated);
    if (transformers === undefined)
      console.log('transformers: not measured, RAGEN_PYTHON has no torch and transformers');
    try {
      await measure(folder, counts, transformers);
    } finally {
      transformers?.close();
    }
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

async function measure(
  folder: string,
  counts: readonly number[],
  transformers: TransformersProcess | undefined,
): Promise<void> {
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
    const by =
      (ask: Ask): Way =>
      (streams, round) =>
        clients(streams, round, ask);
    const served = (stream: boolean) => by((prompt, seed) => complete(url, prompt, seed, stream, dispatcher));
    const others: Way[] = transformers
      ? [async n => ({ tokensPerSecond: await transformers.rate(n), firstTokenMs: Number.NaN })]
      : [];
    for (const streams of counts) {
      const all = await compare(streams, [by(here), served(false), served(true), ...others]);
      const [local, whole, events, batch] = all;
      const shown = ({ tokensPerSecond, share }: Compared) =>
        `${tokensPerSecond.toFixed(0)} tokens/s (${share.toFixed(2)})`;
      console.log(
        `×${streams}: in process ${local.tokensPerSecond.toFixed(0)} tokens/s, served ${shown(whole)}, ` +
          `streamed ${shown(events)}, first token after ${events.firstTokenMs.toFixed(1)} ms` +
          (batch
            ? `, transformers ${shown(batch)}: served is ${(whole.share / batch.share).toFixed(1)} ×`
            : ''),
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

await main();

/**
 * Tokens a second and time to the first token of `ragen serve` under a number of concurrent clients, as a share of the same
 * policy called in process with as many sequences at once. The server is a separate process on this machine; server and clients share
 * its cores.
 *
 *     npm run bench:serving [-- --shape 0.8M --streams 1,8,32,128 --rounds 3 --seconds 2 --tokens 64 --workers 2]
 *
 * In a round each way gets requests for `--seconds` and ends those in progress; as long a warm-up comes first. `--tokens` is the
 * length of responses, the shape's own unless given. Each measurement is printed to standard error as it comes.
 * Where a Python with torch and transformers is found (RAGEN_PYTHON), its generate loop over a batch takes turns with them.
 * Shares are of the policy in process in the same round, median over the rounds.
 */

import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Agent, request } from 'undici';
import { Random } from '../shared/random.ts';
import { PYTHON } from '../test/python.test-data.ts';
import { buildWordTokenizer } from '../trainer/models/tokenizer/builder.ts';
import { LocalPolicy } from '../trainer/policy/local-policy.ts';
import { configOf, type Shape, shapeNamed } from './compute/shapes.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { median } from './measuring.ts';
import { startServe } from './server-process.ts';

const SPECIAL_TOKENS = 3;
const PROGRAM = fileURLToPath(new URL('./serving/transformers_generate.py', import.meta.url));

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    shape: { type: 'string', default: '0.8M' },
    streams: { type: 'string', default: '1,8,32,128' },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '2' },
    tokens: { type: 'string' },
    workers: { type: 'string', default: '2' },
  },
});
const shape = shapeNamed(flags.shape);
const generated = flags.tokens === undefined ? shape.generated : positiveInteger('tokens', flags.tokens);
const rounds = positiveInteger('rounds', flags.rounds);
const seconds = positiveInteger('seconds', flags.seconds);
const workers = positiveInteger('workers', flags.workers);

/** Prompts of random tokens, new ones each round so that no cache helps. */
function prompts(streams: number, round: number): () => number[] {
  const rng = Random.fromSeed(1000 * round + streams);
  return () =>
    Array.from(
      { length: shape.prompt },
      () => SPECIAL_TOKENS + rng.integer(shape.vocabulary - SPECIAL_TOKENS),
    );
}

interface Measured {
  readonly tokensPerSecond: number;
  /** Milliseconds, median over requests; NaN where replies are not streamed. */
  readonly firstTokenMs: number;
}

/** Each client sends the next request when the last is answered, until the time of the round is over. */
async function clients(streams: number, round: number, ask: Ask): Promise<Measured> {
  const prompt = prompts(streams, round);
  const firsts: number[] = [];
  const started = performance.now();
  const elapsed = () => (performance.now() - started) / 1000;
  await Promise.all(
    Array.from({ length: streams }, async (_, client) => {
      while (elapsed() < seconds) firsts.push(await ask(prompt(), client));
    }),
  );
  return { tokensPerSecond: (firsts.length * generated) / elapsed(), firstTokenMs: median(firsts) };
}

const sampling = {
  temperature: 1,
  topK: 0,
  topP: 1,
  maxNewTokens: generated,
  stopTokenIds: [],
};

/** A way to get responses: milliseconds to the first token, or NaN where that is not seen. */
type Ask = (prompt: number[], seed: number) => Promise<number>;

/** Answers prompts of this many streams, other ones in every round. */
interface Way {
  readonly name: string;
  readonly measure: (streams: number, round: number) => Promise<Measured>;
}

interface Compared extends Measured {
  /** Tokens a second as a share of the first way's in the same round, median over the rounds. */
  readonly share: number;
}

/** Several ways that take turns, a round each, so that what else the machine does meets them alike. */
async function compare(streams: number, ways: readonly Way[]): Promise<Compared[]> {
  const results: Measured[][] = ways.map(() => []);
  // The first round compiles and warms up.
  for (let round = 0; round <= rounds; round++) {
    for (const [i, { name, measure }] of ways.entries()) {
      const measured = await measure(streams, round * ways.length + i);
      const what = round === 0 ? 'warm-up' : `round ${round} of ${rounds}`;
      console.error(`×${streams}, ${what}: ${name} ${measured.tokensPerSecond.toFixed(0)} tokens/s`);
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
      `${shape.name}: prompts of ${shape.prompt}, responses of ${generated} tokens, ${workers} workers`,
    );
    const transformers = await startTransformers(folder, shape.prompt, generated);
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

/** A process that generates with transformers. */
interface TransformersProcess {
  /** Tokens a second of a batch of this many prompts. */
  rate(prompts: number): Promise<number>;
  close(): void;
}

/** @returns undefined where the Python of RAGEN_PYTHON has no torch and transformers */
async function startTransformers(
  folder: string,
  prompt: number,
  generated: number,
): Promise<TransformersProcess | undefined> {
  const child = spawn(PYTHON, [PROGRAM, folder, String(prompt), String(generated)], {
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  child.on('error', () => {});
  child.stdin.on('error', () => {});
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const read = async () => (await lines.next()).value as string | undefined;
  if ((await read()) === undefined) return undefined;
  return {
    async rate(prompts) {
      child.stdin.write(`${prompts}\n`);
      const line = await read();
      if (line === undefined) throw new Error('the program with transformers ended');
      return Number(line);
    },
    close: () => void child.kill(),
  };
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
  const context = shape.prompt + generated + 1;
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
    const by = (name: string, ask: Ask): Way => ({
      name,
      measure: (streams, round) => clients(streams, round, ask),
    });
    const served =
      (stream: boolean): Ask =>
      (prompt, seed) =>
        complete(url, prompt, seed, stream, dispatcher);
    const ways = [by('in process', here), by('served', served(false)), by('streamed', served(true))];
    if (transformers !== undefined) {
      const measure = async (count: number) => ({
        tokensPerSecond: await transformers.rate(count),
        firstTokenMs: Number.NaN,
      });
      ways.push({ name: 'transformers', measure });
    }
    for (const streams of counts) {
      const all = await compare(streams, ways);
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
    body: JSON.stringify({ prompt, seed, max_tokens: generated, ignore_eos: true, stream }),
  });
  let first = Number.NaN;
  for await (const _ of body) if (Number.isNaN(first)) first = performance.now() - started;
  if (statusCode !== 200) throw new Error(`status ${statusCode}`);
  return stream ? first : Number.NaN;
}

await main();

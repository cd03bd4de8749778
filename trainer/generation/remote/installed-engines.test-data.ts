import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import type { Test } from 'tap';
import { freePort } from '../../../test/free-port.test-data.ts';
import { scratchConfig } from '../../models/config.ts';
import { LocalPolicy, type LocalPolicyOptions } from '../../policy/local-policy.ts';
import type { EngineClient } from './engine-client.ts';
import { RemoteGenerator } from './remote-generator.ts';

/** Servers of engines that tests of parts install, and policies that they sample for. */

export const CONTEXT = 128;
/** The largest difference that float32 on another machine's kernels makes, in nats. */
export const ROUNDING = 1e-3;
/** Longest time of a test with an engine, of its start, and of a reply: the first ones compile. */
export const ENGINE_MS = 900_000;
const START_MS = 600_000;
export const REPLY_MS = 300_000;

/** Ends what the test started, and all that this has started. */
async function end(child: ChildProcess): Promise<void> {
  const ended = new Promise(resolve => child.once('exit', resolve));
  if (child.exitCode !== null || child.signalCode !== null) return;
  process.kill(-child.pid!, 'SIGTERM');
  const timer = setTimeout(() => process.kill(-child.pid!, 'SIGKILL'), 10_000);
  await ended;
  clearTimeout(timer);
}

/** An engine's server. @param args besides its host and port @returns its address when it answers */
export async function serveEngine(
  t: Pick<Test, 'teardown'>,
  python: string,
  args: readonly (string | number)[],
  env: NodeJS.ProcessEnv,
): Promise<string> {
  const port = await freePort();
  const child = spawn(python, [...args, '--port', port, '--host', '127.0.0.1'].map(String), {
    stdio: ['ignore', 'ignore', 'pipe'],
    detached: true,
    env: { ...process.env, ...env },
  });
  t.teardown(() => end(child));
  let said = '';
  child.stderr.on('data', chunk => {
    said = (said + chunk).slice(-4000);
  });
  const url = `http://127.0.0.1:${port}`;
  for (const until = performance.now() + START_MS; performance.now() < until; await pause(500)) {
    const how = child.exitCode ?? child.signalCode;
    if (how !== null) throw new Error(`${args[1]} ended with ${how}:\n${said}`);
    if (
      await fetch(`${url}/health`).then(
        ({ ok }) => ok,
        () => false,
      )
    )
      return url;
  }
  throw new Error(`${args[1]} does not answer within ${START_MS / 1000} s:\n${said}`);
}

export const MODEL = scratchConfig({ vocabularySize: 512, hiddenSize: 64, heads: 2, initializerRange: 0.2 });

export const policyOf = (options: Partial<LocalPolicyOptions>): Promise<LocalPolicy> =>
  LocalPolicy.create({
    model: MODEL,
    seed: 5,
    workers: 1,
    valueHead: true,
    maxSequenceLength: CONTEXT,
    maxOpenSequences: 16,
    ...options,
  });

/** @param patienceMs time until what may pass counts as a failure */
export function generatorOf(
  t: Pick<Test, 'teardown'>,
  engine: EngineClient,
  patienceMs = REPLY_MS,
): RemoteGenerator {
  const generator = new RemoteGenerator({
    engines: [engine],
    maxSequenceLength: CONTEXT,
    vocabularySize: 512,
    grammars: {},
    patienceMs,
    olderVersions: 0,
    note: () => {},
  });
  t.teardown(() => generator.close());
  return generator;
}

/** The largest difference between the engine's log-probabilities and the policy's. */
export async function largestGap(
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

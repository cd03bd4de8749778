import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { createServer, request, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';
import { Random } from '../../../shared/random.ts';
import { listenLocally, serveHttp } from '../../../test/local-server.test-data.ts';
import { PYTHON } from '../../../test/python.test-data.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import { TinkerHttp, type TinkerHttpOptions } from './http.ts';
import { TinkerPolicy, type TinkerPolicyOptions } from './tinker-policy.ts';

const SERVER = fileURLToPath(new URL('./reference-server.test-data.py', import.meta.url));

const VOCABULARY = 24;

/** The reference server in Python. */
export async function referenceServer(t: Test, folder: string, ...args: string[]) {
  const portFile = join(folder, `port-${Date.now()}`);
  const child = spawn(PYTHON, [SERVER, portFile, folder, ...args], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  const kill = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise(resolve => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  };
  t.teardown(kill);
  while (!existsSync(portFile) || readFileSync(portFile, 'utf8') === '') {
    if (child.exitCode !== null) throw new Error('the reference server did not start');
    await sleep(20);
  }
  const url = `http://127.0.0.1:${readFileSync(portFile, 'utf8')}`;
  return { url, kill, state: async () => (await (await fetch(`${url}/state`)).json()) as ServerState };
}

export interface ServerState {
  readonly models: Readonly<
    Record<string, { readonly steps: number; readonly b: number[][]; readonly last: number[][] }>
  >;
  readonly log: readonly (readonly [string, number])[];
  /** The model: logits = base[previous] + a[previous] · b. */
  readonly base: number[][];
  readonly a: number[][];
}

/** A fault of a proxy: it replies itself, before or after the server has carried it out, or cuts the connection. */
export interface Fault {
  readonly route: string;
  /** Requests of the route that pass before. */
  readonly after?: number;
  readonly times?: number;
  readonly status?: number;
  readonly body?: string | Uint8Array;
  readonly headers?: Record<string, string>;
  /** The server has carried the request out, and only the reply is lost. */
  readonly late?: boolean;
  readonly cut?: 'before' | 'within';
  /** Changes the server's reply. */
  readonly change?: (reply: Buffer) => Uint8Array;
}

/** A proxy with faults, which may be added at any time. */
export async function faultyProxy(t: Test, target: string) {
  const faults: (Fault & { seen: number })[] = [];
  const seen: string[] = [];
  const server = createServer(async (incoming, outgoing) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const route = incoming.url!.replace('/api/v1/', '');
    seen.push(route);
    const fault = faults.find(({ route: own, after = 0, times = 1, ...rest }) => {
      if (own !== route) return false;
      return rest.seen >= after && rest.seen < after + times;
    });
    for (const other of faults) if (other.route === route) other.seen++;
    const pass = () =>
      new Promise<{ status: number; headers: object; body: Buffer }>((resolve, reject) => {
        const to = request(
          `${target}${incoming.url}`,
          { method: incoming.method, headers: incoming.headers },
          reply => {
            const parts: Buffer[] = [];
            reply.on('data', part => parts.push(part));
            reply.on('end', () =>
              resolve({ status: reply.statusCode!, headers: reply.headers, body: Buffer.concat(parts) }),
            );
          },
        );
        to.on('error', reject);
        to.end(Buffer.concat(chunks));
      });
    try {
      if (fault?.cut === 'before' && !fault.late) return void outgoing.destroy();
      if (fault && !fault.late && !fault.change && fault.cut === undefined) {
        outgoing.writeHead(fault.status ?? 200, { 'content-type': 'application/json', ...fault.headers });
        return void outgoing.end(fault.body ?? '{}');
      }
      const { status, headers, body } = await pass();
      if (fault?.cut === 'before') return void outgoing.destroy();
      if (fault?.cut === 'within') {
        outgoing.writeHead(status, { ...headers });
        outgoing.write(body.subarray(0, Math.max(1, body.length >> 1)));
        return void setTimeout(() => outgoing.destroy(), 20);
      }
      if (fault?.late) {
        outgoing.writeHead(fault.status ?? 500, { 'content-type': 'application/json' });
        return void outgoing.end(fault.body ?? '{}');
      }
      const changed = fault?.change ? fault.change(body) : body;
      outgoing.writeHead(fault?.status ?? status, {
        ...headers,
        'content-length': changed.length,
        ...fault?.headers,
      });
      outgoing.end(changed);
    } catch {
      outgoing.destroy();
    }
  });
  const { url } = await listenLocally(t, server);
  return {
    url,
    seen,
    fault: (fault: Fault) => void faults.push({ ...fault, seen: 0 }),
  };
}

type Handler = (route: string, reply: ServerResponse) => void;

/** A client of a server that may do anything. */
export async function hostileServer(t: Test, handler: Handler, over: Partial<TinkerHttpOptions> = {}) {
  const routes: string[] = [];
  const { url } = await serveHttp(t, (request, reply) => {
    const route = request.url!.replace('/api/v1/', '');
    routes.push(route);
    handler(route, reply);
  });
  const retry = { baseMs: 5, maxDelayMs: 40, patienceMs: 300 };
  const http = new TinkerHttp({ url, apiKey: 'tml-secret', maxSequenceLength: 64, retry, ...over });
  t.teardown(() => http.close());
  return { http, url, routes };
}

export const replyJson = (reply: ServerResponse, body: object, status = 200): void =>
  void reply.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));

/** Options of a policy at a server, with short waits. */
export function tinkerOptions(url: string, over: Partial<TinkerPolicyOptions> = {}): TinkerPolicyOptions {
  return {
    url,
    server: 'ragen',
    baseModel: 'bigram',
    lora: { rank: 4, seed: 1, attention: true, mlp: true },
    vocabularySize: VOCABULARY,
    maxSequenceLength: 64,
    keepCheckpoints: 2,
    ttlSeconds: null,
    olderVersions: 1,
    prices: { prefill: 0, sample: 0, train: 0 },
    files: {},
    retry: { baseMs: 5, maxDelayMs: 40, patienceMs: 3_000 },
    note: () => {},
    ...over,
  };
}

export async function tinkerPolicy(
  t: Test,
  url: string,
  over: Partial<TinkerPolicyOptions> = {},
): Promise<TinkerPolicy> {
  const policy = await TinkerPolicy.open(tinkerOptions(url, over));
  t.teardown(() => policy.close());
  return policy;
}

/** Episodes that the policy played, with made-up advantages; a reference and π_prox are near the behavior. */
export async function playTinker(policy: TinkerPolicy, count: number): Promise<TrainingSequence[]> {
  return Promise.all(
    Array.from({ length: count }, async (_, n) => {
      const random = Random.fromSeed(7 + n);
      const append = Array.from({ length: 3 + (n % 3) }, () => random.integer(policy.vocabularySize));
      const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens: 4 + n, stopTokenIds: [9] };
      const { tokenIds, logProbs } = await policy.generate({ sequenceId: n, append, sampling, seed: 50 + n });
      policy.release(n);
      const length = append.length + tokenIds.length;
      const lossMask = new Uint8Array(length).fill(1, append.length);
      const own = new Float32Array(length);
      own.set(logProbs, append.length);
      const near = (spread: number) =>
        own.map((x, t) => (lossMask[t] ? x + spread * (random.float() - 0.5) : 0));
      return {
        tokenIds: Int32Array.from([...append, ...tokenIds]),
        lossMask,
        logProbs: own,
        advantages: new Float32Array(length).fill(random.normal()),
        referenceLogProbs: near(0.6),
        proximalLogProbs: near(0.6),
        selected: lossMask.map((on, t) => (t % 3 === 0 ? on : 0)),
        preference: { chosen: n % 2 === 0, partnerLogRatio: 0.1 * n },
      };
    }),
  );
}

import { request } from 'undici';
import { checkServiceAddress } from '../datasets/service-address.ts';
import {
  type Backend,
  BackendFailed,
  type LeanMessage,
  sourceOf,
  type Theorem,
  type Verdict,
  verdictOf,
} from './backend.ts';

/** Hosts beside the loopback ones that Lean servers may run on, separated by commas. */
export const LEAN_HOSTS_VARIABLE = 'RAGEN_LEAN_HOSTS';
/** Key of the Lean server, sent as a bearer token. */
export const LEAN_KEY_VARIABLE = 'RAGEN_LEAN_API_KEY';
/** What the reply may take beyond the time that Lean is given. */
const REPLY_GRACE_MS = 5000;
const LONGEST_REPLY = 16 * 1024 * 1024;

/** A Kimina Lean server (`POST /api/check`). @throws InvalidConfig for an address that is not allowed */
export function kiminaBackend(url: string, timeoutMs: number): Backend {
  const address = checkServiceAddress('/server_url', url, LEAN_HOSTS_VARIABLE);
  return { check: (theorem, tactics) => check(address, timeoutMs, theorem, tactics) };
}

interface CheckResult {
  readonly error?: string | null;
  readonly response?: {
    readonly message?: string;
    readonly messages?: readonly LeanMessage[];
    readonly sorries?: readonly unknown[];
  } | null;
}

async function check(
  address: string,
  timeoutMs: number,
  theorem: Theorem,
  tactics: readonly string[],
): Promise<Verdict> {
  const key = process.env[LEAN_KEY_VARIABLE];
  const payload = {
    snippets: [{ id: theorem.name || 'proof', code: sourceOf(theorem, tactics) }],
    timeout: Math.ceil(timeoutMs / 1000),
    debug: false,
    reuse: true,
    infotree: null,
  };
  let text: string;
  try {
    const { statusCode, body } = await request(`${address}/api/check`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(key && { authorization: `Bearer ${key}` }) },
      body: JSON.stringify(payload),
      signal: AbortSignal.timeout(timeoutMs + REPLY_GRACE_MS),
    });
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of body) {
      size += (chunk as Buffer).length;
      if (size > LONGEST_REPLY) throw new BackendFailed('the Lean server sent too much');
      chunks.push(chunk as Buffer);
    }
    if (statusCode !== 200) throw new BackendFailed(`the Lean server answered with status ${statusCode}`);
    text = Buffer.concat(chunks).toString('utf8');
  } catch (error) {
    if (error instanceof BackendFailed) throw error;
    const { name, message, code } = error as Error & { code?: string };
    if (name === 'TimeoutError') return { status: 'timeout', messages: ['no answer in time'] };
    throw new BackendFailed(`the Lean server at ${address} does not answer: ${code ?? message}`);
  }
  return readReply(text);
}

function readReply(text: string): Verdict {
  let results: unknown;
  try {
    results = (JSON.parse(text) as { results?: unknown }).results;
  } catch {
    throw new BackendFailed('the Lean server did not answer in JSON');
  }
  const result = Array.isArray(results) ? (results[0] as CheckResult | undefined) : undefined;
  if (!result) throw new BackendFailed('the Lean server answered without a result');
  if (result.error) {
    const timedOut = result.error.toLowerCase().includes('timed out');
    return { status: timedOut ? 'timeout' : 'rejected', messages: [result.error] };
  }
  const { response } = result;
  if (!response) throw new BackendFailed('the Lean server answered without a response');
  if (response.message !== undefined) return { status: 'rejected', messages: [response.message] };
  return verdictOf(response.messages ?? [], response.sorries ?? []);
}

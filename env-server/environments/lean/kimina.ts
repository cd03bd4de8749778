import { RefusedBody, textOf } from '../../../shared/http/chunks.ts';
import { orAborted } from '../../../shared/http/retry.ts';
import { parseJson } from '../../../shared/json.ts';
import { checkServiceAddress } from '../core/datasets/service-address.ts';
import {
  axiomsCommand,
  type Backend,
  BackendFailed,
  type LeanMessage,
  NO_ANSWER,
  sourceOf,
  type Verdict,
  verdictOf,
  verdictOnAxioms,
} from './backend.ts';

/** Hosts of Lean servers besides the loopback ones, separated by commas. */
const LEAN_HOSTS_VARIABLE = 'RAGEN_LEAN_HOSTS';
/** Key of the Lean server, sent as a bearer token. */
const LEAN_KEY_VARIABLE = 'RAGEN_LEAN_API_KEY';
/** Milliseconds that the reply may take beyond Lean's own time limit. */
const REPLY_GRACE_MS = 5000;
const MAX_REPLY_LENGTH = 16 * 1024 * 1024;

/**
 * A Kimina Lean server (`POST /api/check`).
 * @throws InvalidConfig for a forbidden address
 */
export function kiminaBackend(url: string, timeoutMs: number): Backend {
  const address = checkServiceAddress('/server_url', url, LEAN_HOSTS_VARIABLE);
  return {
    async check(theorem, tactics) {
      const code = sourceOf(theorem, tactics);
      const reply = await ask(address, timeoutMs, theorem.name, code);
      if ('status' in reply) return reply;
      const verdict = verdictOf(theorem, reply.messages ?? [], reply.sorries ?? []);
      if (verdict.status !== 'proved') return verdict;
      const again = await ask(address, timeoutMs, theorem.name, `${code}\n${axiomsCommand(theorem)}\n`);
      return 'status' in again ? again : verdictOnAxioms(verdict, again.messages ?? []);
    },
  };
}

interface Response {
  readonly message?: string;
  readonly messages?: readonly LeanMessage[];
  readonly sorries?: readonly unknown[];
}

interface CheckResult {
  readonly error?: string | null;
  readonly response?: Response | null;
}

/** Lean's messages about a text, or a verdict where it returned none. */
async function ask(
  address: string,
  timeoutMs: number,
  name: string,
  code: string,
): Promise<Response | Verdict> {
  const key = process.env[LEAN_KEY_VARIABLE];
  const payload = {
    snippets: [{ id: name || 'proof', code }],
    timeout: Math.ceil(timeoutMs / 1000),
    debug: false,
    reuse: true,
    infotree: null,
  };
  let text: string;
  try {
    const { request } = await import('undici');
    const signal = AbortSignal.timeout(timeoutMs + REPLY_GRACE_MS);
    const replying = request(`${address}/api/check`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(key && { authorization: `Bearer ${key}` }) },
      body: JSON.stringify(payload),
      // A new connection: the server may just be closing an idle one, and a check takes long anyway.
      reset: true,
      signal,
    });
    // undici looks at the signal of a request when it is connected.
    const { statusCode, body } = await orAborted(replying, signal);
    text = await textOf(body, { maxBytes: MAX_REPLY_LENGTH });
    if (statusCode !== 200) throw new BackendFailed(`the Lean server answered with status ${statusCode}`);
  } catch (error) {
    if (error instanceof BackendFailed) throw error;
    if (error instanceof RefusedBody)
      throw new BackendFailed(`the Lean server sent too much: ${error.message}`);
    const { name, message, code } = error as Error & { code?: string };
    if (name === 'TimeoutError') return NO_ANSWER;
    throw new BackendFailed(`the Lean server at ${address} does not answer: ${code ?? message}`);
  }
  return readReply(text);
}

function readReply(text: string): Response | Verdict {
  const reply = parseJson(text) as { results?: unknown } | null | undefined;
  if (reply == null) throw new BackendFailed('the Lean server did not answer in JSON');
  const { results } = reply;
  const result = Array.isArray(results) ? (results[0] as CheckResult | undefined) : undefined;
  if (!result) throw new BackendFailed('the Lean server answered without a result');
  if (result.error) {
    const timedOut = result.error.toLowerCase().includes('timed out');
    return { status: timedOut ? 'timeout' : 'rejected', messages: [result.error] };
  }
  const { response } = result;
  if (!response) throw new BackendFailed('the Lean server answered without a response');
  if (response.message !== undefined) return { status: 'rejected', messages: [response.message] };
  return response;
}

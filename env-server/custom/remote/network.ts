import type { Agent, Dispatcher } from 'undici';
import { type JsonLimits, jsonLimits } from '../json-limits.ts';
import type { NetworkGuard } from './guard.ts';
import { HeaderSecrets } from './secrets.ts';

const CONNECT_TIMEOUT_MS = 5000;
/** Shorter than what services usually allow, so that a connection is not closed under a request. */
const KEEP_ALIVE_MS = 2000;
const CONNECTIONS_PER_HOST = 128;
/** Bytes of a state, observation, info or list of valid actions where nothing else is configured. */
const DEFAULT_VALUE_BYTES = 256 * 1024;
/** Values that a reply has at most: those four. */
const VALUES_PER_REPLY = 4;

type Undici = typeof import('undici');
/** What undici's `request` takes besides the address. */
type RequestOptions = Parameters<Undici['request']>[1];

/** Connections to all remote environments, under one guard. */
export class RemoteNetwork {
  readonly guard: NetworkGuard;
  readonly secrets: HeaderSecrets;
  readonly answerLimits: JsonLimits;
  readonly longestReplyBytes: number;
  /** Loaded with the first request: most servers have no remote environment. */
  #client: Promise<{ readonly agent: Agent; readonly request: Undici['request'] }> | undefined;

  /** @param valueBytes of the largest member of a reply */
  constructor(
    guard: NetworkGuard,
    secrets = new HeaderSecrets({ keyFile: undefined, allowedSecretVariables: '' }),
    valueBytes = DEFAULT_VALUE_BYTES,
  ) {
    this.guard = guard;
    this.secrets = secrets;
    this.answerLimits = jsonLimits(valueBytes);
    this.longestReplyBytes = VALUES_PER_REPLY * valueBytes;
  }

  /** Sends a request on a connection that the guard allows. */
  async send(url: URL, options: RequestOptions): Promise<Dispatcher.ResponseData<unknown>> {
    this.#client ??= this.#open();
    const { agent, request } = await this.#client;
    return request(url, { ...options, dispatcher: agent });
  }

  async #open() {
    const { Agent, request } = await import('undici');
    const agent = new Agent({
      connect: { lookup: this.guard.lookup, timeout: CONNECT_TIMEOUT_MS },
      connections: CONNECTIONS_PER_HOST,
      keepAliveTimeout: KEEP_ALIVE_MS,
      maxResponseSize: this.longestReplyBytes,
    });
    return { agent, request };
  }

  /** Ends all connections, and requests under way. */
  async close(): Promise<void> {
    await (await this.#client)?.agent.destroy();
  }
}

import type { Agent, Dispatcher } from 'undici';
import { type SlotGroup, Slots } from '../../../shared/scheduling/slots.ts';
import { type JsonLimits, jsonLimits } from '../json-limits.ts';
import type { NetworkGuard } from './guard.ts';
import { HeaderSecrets } from './secrets.ts';

const CONNECT_TIMEOUT_MS = 5000;
/** Shorter than services usually allow, so that a connection is not closed under a request. */
const KEEP_ALIVE_MS = 2000;
/** Default limit of a state, observation, info or list of valid actions, in bytes. */
const DEFAULT_VALUE_BYTES = 256 * 1024;
/** Most values of a reply: those four. */
const VALUES_PER_REPLY = 4;
/** Most requests in progress to all services. */
export const MAX_REQUESTS = 2048;
/** Most WebSockets to all services: each takes a file descriptor, and memory that no budget counts. */
const MAX_SOCKETS = 8192;
/**
 * With several owners, one gets another request or socket while it has fewer than this many times the free ones; alone it can
 * have 3/4.
 */
const OWNER_SHARE = 3;

type Undici = typeof import('undici');
/** Options of undici's `request`. */
type RequestOptions = Parameters<Undici['request']>[1];

/** The network for the environments of one owner. */
export interface OwnedNetwork {
  readonly network: RemoteNetwork;
  /** The token that registered them. */
  readonly owner: string;
}

/** Connections to all remote environments, under one guard. */
export class RemoteNetwork {
  readonly guard: NetworkGuard;
  readonly secrets: HeaderSecrets;
  readonly answerLimits: JsonLimits;
  readonly longestReplyBytes: number;
  readonly #owners = new Set<string>();
  readonly #slots: Slots;
  readonly #sockets: Slots;
  /** Loaded with the first request: most servers have no remote environment. */
  #undici: Promise<Undici> | undefined;
  /** By the most connections to one address; undefined: no limit. */
  readonly #agents = new Map<number | undefined, Agent>();

  /**
   * @param valueBytes largest member of a reply
   * @param maxRequests requests in progress at a time
   * @param maxSockets open WebSockets
   */
  constructor(
    guard: NetworkGuard,
    secrets = new HeaderSecrets({ keyFile: undefined, allowedSecretVariables: '' }),
    valueBytes = DEFAULT_VALUE_BYTES,
    maxRequests = MAX_REQUESTS,
    maxSockets = MAX_SOCKETS,
  ) {
    this.guard = guard;
    this.secrets = secrets;
    this.answerLimits = jsonLimits(valueBytes);
    this.longestReplyBytes = VALUES_PER_REPLY * valueBytes;
    const shared = (most: number) =>
      new Slots({ most, mostOfOwner: free => (this.#owners.size > 1 ? OWNER_SHARE * free : most) });
    this.#slots = shared(maxRequests);
    this.#sockets = shared(maxSockets);
  }

  /**
   * Slots for the requests of one environment: owners take turns, then their environments.
   * @param connections requests at a time
   */
  slots(owner: string, connections: number): SlotGroup {
    this.#owners.add(owner);
    return this.#slots.group(owner, connections);
  }

  /** Slots for the open WebSockets of an owner. */
  sockets(owner: string): SlotGroup {
    return this.#sockets.group(owner);
  }

  /**
   * Sends a request on a connection that the guard allows.
   * @param connections most connections to the address, idle ones included. Without it there is no limit here, because
   * `slots` limits requests before their timeout starts
   */
  async send(
    url: URL,
    options: RequestOptions,
    connections?: number,
  ): Promise<Dispatcher.ResponseData<unknown>> {
    this.#undici ??= import('undici');
    const { Agent, request } = await this.#undici;
    const agent =
      this.#agents.get(connections) ??
      new Agent({
        connect: { lookup: this.guard.lookup, timeout: CONNECT_TIMEOUT_MS },
        keepAliveTimeout: KEEP_ALIVE_MS,
        maxResponseSize: this.longestReplyBytes,
        ...(connections === undefined ? {} : { connections }),
      });
    this.#agents.set(connections, agent);
    return request(url, { ...options, dispatcher: agent });
  }

  /** Ends all connections and requests in progress. */
  async close(): Promise<void> {
    await this.#undici; // A request that still waits for it has its agent then.
    await Promise.all([...this.#agents.values()].map(agent => agent.destroy()));
  }
}

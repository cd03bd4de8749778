import { lookup as systemLookup } from 'node:dns/promises';
import { addAbortListener } from 'node:events';
import { readFileSync } from 'node:fs';
import { BlockList, isIP, isIPv6, type LookupFunction } from 'node:net';
import type { Agent, Dispatcher } from 'undici';
import { itemsOf } from '../../../shared/http/addresses.ts';
import { RecentMap } from '../../../shared/remembered.ts';
import { type SlotGroup, Slots } from '../../../shared/scheduling/queues.ts';
import { type JsonLimits, jsonLimits } from '../json-limits.ts';
import { HeaderSecrets } from './secrets.ts';

/** For a connection, where the timeout of the request is not shorter. */
const CONNECT_TIMEOUT_MS = 5000;
/** Shorter ones are rounded up to multiples, so that there are few agents. */
const CONNECT_STEP_MS = 250;
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
  /** By the most connections to one address, and the time for one. */
  readonly #agents = new Map<string, Agent>();

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
    const timeoutMs = options?.headersTimeout ?? CONNECT_TIMEOUT_MS;
    const timeout = Math.min(CONNECT_TIMEOUT_MS, CONNECT_STEP_MS * Math.ceil(timeoutMs / CONNECT_STEP_MS));
    const kind = `${connections} ${timeout}`;
    const agent =
      this.#agents.get(kind) ??
      new Agent({
        connect: { lookup: this.guard.lookup, timeout },
        keepAliveTimeout: KEEP_ALIVE_MS,
        maxResponseSize: this.longestReplyBytes,
        ...(connections === undefined ? {} : { connections }),
      });
    this.#agents.set(kind, agent);
    return request(url, { ...options, dispatcher: agent });
  }

  /** Ends all connections and requests in progress. */
  async close(): Promise<void> {
    await this.#undici; // A request that still waits for it has its agent then.
    await Promise.all([...this.#agents.values()].map(agent => agent.destroy()));
  }
}

/** Networks that lead somewhere else than to a public service: this machine, its neighbors, documentation, multicast. */
const SPECIAL_NETWORKS: { readonly [network: string]: string } = JSON.parse(
  readFileSync(new URL('./special-networks.json', import.meta.url), 'utf8'),
);

const SPECIAL = Object.entries(SPECIAL_NETWORKS).map(([network, what]) => ({
  name: `${network} (${what})`,
  list: networkList([parseNetwork(network)]),
}));

/** IPv6 range of public services (RFC 4291, section 2.4); every address outside it is refused. */
const GLOBAL_UNICAST = networkList([['2000::', 3]]);
/** IPv4 written as IPv6, which is checked as IPv4. */
const MAPPED = networkList([['::ffff:0:0', 96]]);

const MAX_PINNED = 1000;
/**
 * Names that are resolved at a time, one of each owner: Node resolves two at a time in the whole process, and a name
 * server that is silent holds one for ten seconds or more.
 */
const MAX_LOOKUPS = 2;
const MAX_LOOKUP_WAIT_MS = 30_000;

interface Address {
  readonly address: string;
  readonly family: number;
}

interface Pin {
  readonly addresses: readonly Address[];
  /** True when an address could not be reached, so that the next check looks the name up again. */
  stale: boolean;
}

/** Resolves all addresses of a host name. */
export type Resolve = (hostname: string) => Promise<readonly Address[]>;

export interface GuardSettings {
  /** Allowed host names, separated by commas; `*.example.org` allows all below it, `*` all. */
  readonly remoteHosts: string;
  /** Networks inside the special ranges that stay reachable, e.g. `127.0.0.1/32`, separated by commas. */
  readonly remoteNetworks: string;
}

/** Called with a rejected name and its address, which clients do not learn. */
export type OnRefusal = (refusal: { host: string; address: string; network: string }) => void;

/** An address that remote environments may not use. */
export class ForbiddenAddress extends Error {
  override readonly name = 'ForbiddenAddress';
}

/**
 * A name that does not resolve, or resolves to a forbidden address. Both give the same message, so that refusals do not
 * reveal addresses inside this server's network.
 */
export class UnresolvedHost extends Error {
  readonly code = 'ENOTFOUND';
  constructor(host: string) {
    super(`${host} does not resolve to an address that this server may reach; see --remote-networks`);
    this.name = 'UnresolvedHost';
  }
}

/**
 * Keeps remote environments from reaching what only this machine can reach. Every connection, retries included, goes
 * through `lookup`: it connects to the very address that was checked, and a name keeps its first address, so that its
 * owner cannot redirect it later.
 */
export class NetworkGuard {
  readonly #hosts: readonly string[];
  readonly #allowed: BlockList;
  readonly #resolve: Resolve;
  readonly #onRefusal: OnRefusal | undefined;
  readonly #lookups = new Slots({ most: MAX_LOOKUPS, mostOfOwner: () => 1 });
  readonly #pinned = new RecentMap<string, Pin>(MAX_PINNED);
  /** Lookups in progress or in their owner's queue, by owner and name. */
  readonly #pending = new Map<string, Promise<void>>();

  /** @throws Error when the settings cannot be read */
  constructor(
    settings: GuardSettings,
    resolve: Resolve = hostname => systemLookup(hostname, { all: true, order: 'verbatim' }),
    onRefusal?: OnRefusal,
  ) {
    this.#onRefusal = onRefusal;
    this.#hosts = itemsOf(settings.remoteHosts.toLowerCase());
    this.#allowed = networkList(itemsOf(settings.remoteNetworks).map(parseNetwork));
    this.#resolve = resolve;
  }

  /**
   * Checks everything that needs no lookup: scheme, credentials, host name, a literal address.
   * @throws ForbiddenAddress
   */
  checkUrl(url: URL): void {
    if (!['http:', 'https:', 'ws:', 'wss:'].includes(url.protocol)) {
      throw new ForbiddenAddress(`${url.protocol}// is not spoken; use http:// or https://`);
    }
    if (url.username !== '' || url.password !== '') {
      throw new ForbiddenAddress('an address must not hold a user name or a password; use headers');
    }
    const host = hostOf(url);
    if (!this.#hosts.some(pattern => matches(pattern, host))) {
      throw new ForbiddenAddress(
        `the host ${host} is not on this server's list; --remote-hosts has ${this.#hosts.join(', ') || 'none'}`,
      );
    }
    if (!isIP(host)) return;
    const network = this.#specialNetwork(host);
    if (network === undefined) return;
    const bits = isIPv6(host) ? 128 : 32;
    throw new ForbiddenAddress(
      `${host} lies in ${network}; this server may reach that only with --remote-networks ${host}/${bits}`,
    );
  }

  /**
   * Checks every address that a name resolves to.
   * @param owner the token that waits; owners take turns
   * @throws ForbiddenAddress, UnresolvedHost, also when the signal aborts first
   */
  async check(url: URL, owner: string, signal?: AbortSignal): Promise<void> {
    this.checkUrl(url);
    const host = hostOf(url);
    if (isIP(host) || this.#fresh(host)) return;
    const aborted = new Promise<never>((_, reject) => {
      if (signal) addAbortListener(signal, () => reject(new UnresolvedHost(host)));
    });
    await Promise.race([this.#lookUp(host, owner), aborted]);
  }

  /** Allows a new lookup of a name after its address could not be reached. */
  unpin(url: URL): void {
    const pin = this.#pinned.get(hostOf(url));
    if (pin) pin.stale = true;
  }

  /** The `lookup` function for sockets, in place of the system's: gives the addresses that {@link check} found. */
  readonly lookup: LookupFunction = (hostname, options, callback) => {
    const pin = this.#pinned.get(hostname.toLowerCase());
    process.nextTick(() => {
      if (!pin) callback(new UnresolvedHost(hostname), '', 0);
      else if (options.all) callback(null, structuredClone(pin.addresses) as Address[]);
      else callback(null, pin.addresses[0].address, pin.addresses[0].family);
    });
  };

  #fresh(host: string): Pin | undefined {
    const pin = this.#pinned.get(host);
    return pin?.stale ? undefined : pin;
  }

  #lookUp(host: string, owner: string): Promise<void> {
    const key = JSON.stringify([owner, host]);
    const pending = this.#pending.get(key);
    if (pending) return pending;
    const found = this.#lookUpInTurn(host, owner).finally(() => this.#pending.delete(key));
    this.#pending.set(key, found);
    return found;
  }

  async #lookUpInTurn(host: string, owner: string): Promise<void> {
    const slot = this.#lookups.group(owner);
    if (!(await slot.take(MAX_LOOKUP_WAIT_MS))) throw new UnresolvedHost(host);
    try {
      if (this.#fresh(host)) return;
      const addresses = await this.#resolve(host).catch(() => []);
      this.#pinned.delete(host);
      this.#judge(addresses, host);
      this.#pinned.set(host, { addresses, stale: false });
    } finally {
      slot.release();
    }
  }

  /** @throws UnresolvedHost when there is no address, or a forbidden one */
  #judge(addresses: readonly Address[], host: string): void {
    for (const { address } of addresses) {
      const network = this.#specialNetwork(address);
      if (network === undefined) continue;
      this.#onRefusal?.({ host, address, network });
      throw new UnresolvedHost(host);
    }
    if (addresses.length === 0) throw new UnresolvedHost(host);
  }

  /** The special network that contains an address; undefined for an allowed address. */
  #specialNetwork(written: string): string | undefined {
    // A zone names an interface of this machine.
    const [address] = written.split('%', 1);
    const family = isIPv6(address) ? 'ipv6' : 'ipv4';
    if (this.#allowed.check(address, family)) return undefined;
    const special = SPECIAL.find(({ list }) => list.check(address, family));
    if (special) return special.name;
    if (family === 'ipv4' || GLOBAL_UNICAST.check(address, family) || MAPPED.check(address, family)) {
      return undefined;
    }
    return 'no network of public services';
  }
}

/** Without the brackets of IPv6. */
function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '').toLowerCase();
}

function matches(pattern: string, host: string): boolean {
  if (pattern === '*') return true;
  return pattern.startsWith('*.') ? host.endsWith(pattern.slice(1)) : host === pattern;
}

function parseNetwork(text: string): readonly [string, number] {
  const [address, prefix, ...rest] = text.split('/');
  const bits = isIP(address) === 6 ? 128 : 32;
  const length = prefix === undefined ? bits : Number(prefix);
  if (isIP(address) === 0 || rest.length > 0 || !Number.isInteger(length) || length < 0 || length > bits) {
    throw new Error(`--remote-networks lists networks like 10.1.0.0/16 or ::1/128, not "${text}"`);
  }
  return [address, length];
}

function networkList(networks: readonly (readonly [string, number])[]): BlockList {
  const list = new BlockList();
  for (const [network, prefix] of networks)
    list.addSubnet(network, prefix, isIPv6(network) ? 'ipv6' : 'ipv4');
  return list;
}

import type { IncomingMessage } from 'node:http';
import { isIP, isIPv6 } from 'node:net';
import helmet from '@fastify/helmet';
import type { FastifyInstance } from 'fastify';
import { isLoopback, itemsOf } from './addresses.ts';

export interface HostSettings {
  /** Address the server listens on. */
  readonly host: string;
  /** Names separated by commas; `*.example.org` for every name below it, `*` for all; empty for the default. */
  readonly allowedHosts: string;
}

/** Makes the error for a refused request. */
export type HostProblem = (code: 'bad_request' | 'host_not_allowed', detail: string) => Error;

const HOST_NAME = /^(?!-)[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?$/;
const AUTHORITY = /^(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::(\d{0,5}))?$/;
const ABSOLUTE = /^https?:\/\/([^/?#]*)/i;
const MAX_PORT = 65_535;
const IPV4_IN_IPV6 = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/;
/** Number of remembered `Host` values, so that a client's host name is parsed once and not for every request. */
const VALUES_REMEMBERED = 1024;

/**
 * Decides by `Host` whether a request was meant for this server. A web page can point its own name at this machine (DNS
 * rebinding); its requests then look like those of the server's own pages, except for the name in `Host`.
 */
export class AllowedHosts {
  /** True if names are checked; the form of `Host` always is. */
  readonly #checked: boolean;
  readonly #names: ReadonlySet<string>;
  /** Suffixes, including their dot. */
  readonly #below: readonly string[];
  readonly #read = new Map<string, string | undefined>();

  readonly #problem: HostProblem;

  /**
   * @param problem makes the error that {@link check} throws
   * @throws Error for an entry that is not a host name
   */
  constructor({ host, allowedHosts }: HostSettings, problem: HostProblem) {
    this.#problem = problem;
    const listed = itemsOf(allowedHosts.toLowerCase());
    for (const entry of listed) requireHostName(entry);
    // A server that others can reach has tokens, which a foreign page does not know.
    this.#checked = listed.length > 0 ? !listed.includes('*') : isLoopback(host);
    this.#names = new Set([...listed, host.toLowerCase()].map(canonical));
    this.#below = listed.filter(entry => entry.startsWith('*.')).map(entry => entry.slice(1));
  }

  /** True if {@link check} accepts a request; for requests with a path as target. */
  accepts(request: IncomingMessage): boolean {
    const { host } = request.headers;
    return host !== undefined && !hasTwoHosts(request) && this.#verdict(host, request) === undefined;
  }

  /** @throws the problem `bad_request` for a malformed host, `host_not_allowed` for another server's name */
  check(request: IncomingMessage): void {
    const { host } = request.headers;
    if (host === undefined) {
      if (request.httpVersionMinor === 0 && request.httpVersionMajor === 1) return;
      throw this.#problem('bad_request', 'the header Host is missing');
    }
    if (hasTwoHosts(request)) throw this.#problem('bad_request', 'there is more than one header Host');
    const problem = this.#verdict(host, request);
    if (problem) throw problem;
    const target = ABSOLUTE.exec(request.url ?? '')?.[1];
    if (target !== undefined && target.toLowerCase() !== host.toLowerCase()) {
      throw this.#problem(
        'bad_request',
        `the request is for ${shown(target)}, but its header Host is ${shown(host)}: they must be the same`,
      );
    }
  }

  #verdict(host: string, request: IncomingMessage): Error | undefined {
    const name = this.#nameIn(host);
    if (name === undefined) {
      return this.#problem(
        'bad_request',
        `the header Host is ${shown(host)}: it must be a host name or address, and a port where it is not the usual one`,
      );
    }
    if (!this.#checked || this.#isAllowed(name, request)) return undefined;
    return this.#problem(
      'host_not_allowed',
      `the header Host names ${name}, which this server does not answer to; if it is a name of this server, start it with --allowed-hosts ${name} (RAGEN_ALLOWED_HOSTS)`,
    );
  }

  #isAllowed(name: string, { socket }: IncomingMessage): boolean {
    return (
      this.#names.has(name) ||
      isLoopback(name) ||
      name.endsWith('.localhost') ||
      this.#below.some(ending => name.endsWith(ending)) ||
      // Probes and scrapers connect by address; an address, unlike a name, cannot be pointed here by someone else.
      (isIP(name) !== 0 && name === canonical(socket.localAddress ?? ''))
    );
  }

  /** The host in a `Host` value, without its port; undefined when malformed. */
  #nameIn(host: string): string | undefined {
    if (this.#read.has(host)) return this.#read.get(host);
    if (this.#read.size >= VALUES_REMEMBERED) this.#read.clear();
    const name = hostIn(host);
    this.#read.set(host, name);
    return name;
  }
}

function requireHostName(entry: string): void {
  const name = entry.startsWith('*.') ? entry.slice(2) : entry;
  if (entry === '*' || isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0 || HOST_NAME.test(name)) return;
  throw new Error(
    `allowed-hosts: ${JSON.stringify(entry)} is not a host name; list names or addresses without scheme and port, *.example.org for all below it, or * for all`,
  );
}

/** When a header is repeated, Node keeps the first one. */
function hasTwoHosts({ rawHeaders }: IncomingMessage): boolean {
  let count = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (rawHeaders[i].length === 4 && rawHeaders[i].toLowerCase() === 'host') count++;
  }
  return count > 1;
}

function hostIn(value: string): string | undefined {
  const [, host, port = ''] = AUTHORITY.exec(value.toLowerCase()) ?? [];
  if (host === undefined || Number(port) > MAX_PORT) return undefined;
  if (host.startsWith('[')) return isIPv6(host.slice(1, -1)) ? canonical(host) : undefined;
  return HOST_NAME.test(host) ? canonical(host) : undefined;
}

/** One form for equal hosts: no brackets, no final dot, IPv4 where it is written as IPv6. */
function canonical(host: string): string {
  const name = host.replace(/^\[(.*)\]$/, '$1');
  if (!URL.canParse(`http://[${name}]`)) return name.replace(/\.$/, '');
  const address = new URL(`http://[${name}]`).hostname.slice(1, -1);
  const [, high, low] = IPV4_IN_IPV6.exec(address) ?? [];
  if (low === undefined) return address;
  return [high, low]
    .flatMap(part => [Number.parseInt(part, 16) >> 8, Number.parseInt(part, 16) & 255])
    .join('.');
}

const MAX_SHOWN_LENGTH = 100;

function shown(text: string): string {
  return JSON.stringify(text.length > MAX_SHOWN_LENGTH ? `${text.slice(0, MAX_SHOWN_LENGTH)}…` : text);
}

/** Headers of every reply: browsers must not guess another type or store possible secrets. Pages may override them. */
export const REPLY_HEADERS = { 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' };

/** Sets the headers of every reply. */
export function secureReplies(app: FastifyInstance): void {
  app.addHook('onRequest', (_request, reply, done) => {
    reply.headers(REPLY_HEADERS);
    done();
  });
}

/**
 * Sets the headers of pages that are registered on `app` later: they load from this server only, run no inline scripts,
 * and cannot be framed. Encryption, and so `Strict-Transport-Security`, is the proxy's task.
 */
export async function securePages(app: FastifyInstance): Promise<void> {
  await app.register(helmet, {
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'self'"],
        styleSrc: ["'self'"],
        imgSrc: ["'self'", 'data:', 'blob:'],
        objectSrc: ["'none'"],
        baseUri: ["'none'"],
        formAction: ["'self'"],
        frameAncestors: ["'none'"],
      },
    },
    frameguard: { action: 'deny' },
    strictTransportSecurity: false,
  });
}

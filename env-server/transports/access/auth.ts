import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { IncomingHttpHeaders, IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';
import cors from '@fastify/cors';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import type { Static } from 'typebox';
import { isLoopback, itemsOf, networkOf } from '../../../shared/http/addresses.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { counted } from '../../../shared/text.ts';
import { compileCheck } from '../../operations/validation.ts';
import { Problem } from '../../problems.ts';
import { type Principal, SCOPES, type Scope } from '../../sessions/principal.ts';
import { isOrsPath } from '../ors/requests.ts';

const TokenList = Type.Array(
  closed({
    name: Type.String({ minLength: 1, maxLength: 128 }),
    sha256: Type.String({ pattern: '^[0-9a-f]{64}$' }),
    scopes: Type.Array(Type.Enum([...SCOPES], { type: 'string' }), { minItems: 1 }),
  }),
);
type TokenList = Static<typeof TokenList>;

/** The principal of every client of a loopback server without tokens. */
const LOCAL: Principal = { name: 'local', scopes: new Set<Scope>(SCOPES) };

/** The digest that represents a token in the configuration. */
export function hashToken(token: string): string {
  return hash('sha256', token, 'hex');
}

/** Number of headers with a remembered principal, so that a client's token is hashed once and not for every request. */
const HEADERS_REMEMBERED = 1024;

/** Authenticates tokens by their digests. */
export class Authenticator {
  readonly #principals: ReadonlyMap<string, Principal>;
  readonly #byHeader = new Map<string, Principal>();

  /** @param tokens a path to a JSON file, the JSON itself, or empty for none */
  constructor(tokens: string) {
    this.#principals = new Map(
      readTokens(tokens).map(({ name, sha256, scopes }) => [
        sha256,
        { name, scopes: new Set<Scope>(scopes) },
      ]),
    );
  }

  get required(): boolean {
    return this.#principals.size > 0;
  }

  /**
   * The principal of a request.
   * @throws Problem `unauthorized`
   */
  principal(authorization: string | undefined): Principal {
    if (!this.required) return LOCAL;
    const known = authorization === undefined ? undefined : this.#byHeader.get(authorization);
    if (known) return known;
    if (authorization === undefined || !/^bearer /i.test(authorization)) {
      throw new Problem('unauthorized', 'the header "Authorization: Bearer <token>" is missing');
    }
    const token = authorization.slice('bearer '.length).trim();
    // Node reads headers as Latin-1, in which browsers write them; curl sends what the terminal has, which is UTF-8.
    const utf8 = Buffer.from(token, 'latin1').toString();
    const principal = this.#principals.get(hashToken(token)) ?? this.#principals.get(hashToken(utf8));
    if (!principal) throw new Problem('unauthorized', 'the token is not known to this server');
    if (this.#byHeader.size >= HEADERS_REMEMBERED) this.#byHeader.clear();
    this.#byHeader.set(authorization, principal);
    return principal;
  }
}

function readTokens(source: string): TokenList {
  if (source === '') return [];
  const inline = source.trimStart().startsWith('[');
  const what = inline ? 'tokens' : source;
  let list: unknown;
  try {
    list = JSON.parse(inline ? source : readFileSync(source, 'utf8'));
  } catch (error) {
    throw new Error(`${what}: no list of tokens in JSON could be read: ${(error as Error).message}`);
  }
  compileCheck(TokenList, what)(list);
  return list as TokenList;
}

/** @throws Error when a server without tokens would be reachable from outside */
export function refuseOpenServer(host: string, authenticator: Authenticator): void {
  if (isLoopback(host) || authenticator.required) return;
  throw new Error(
    `refusing to listen on ${host} without tokens: anybody could use the server; set --tokens or listen on 127.0.0.1`,
  );
}

const COMPATIBLE_ROUTES = '/compat/';
const BASIC = /^basic (.+)$/i;
/**
 * Prefix of the subprotocol by which a browser, which cannot set headers on a WebSocket, passes its token in base64url.
 */
const TOKEN_PROTOCOL = /(?:^|,)\s*ragen\.bearer\.([\w-]+)\s*(?:,|$)/;
const SOCKET = /^\/v1\/ws(\?|$)/;

/**
 * The `Authorization` of a request. Clients that cannot send a bearer token pass it in the address, as the password
 * (`http://any:token@host/compat/…`); browsers in a WebSocket subprotocol; clients of the Open Reward Standard in
 * `X-API-Key`.
 */
export function authorizationOf({
  url = '',
  headers,
}: Pick<IncomingMessage, 'url' | 'headers'>): string | undefined {
  const { authorization = socketAuthorization(url, headers), 'x-api-key': key } = headers;
  const basic = authorization === undefined ? null : BASIC.exec(authorization);
  if (!basic && typeof key !== 'string') return authorization;
  const isOrs = isOrsPath(url);
  if (isOrs && typeof key === 'string') return `Bearer ${key}`;
  if (!basic || !(isOrs || url.startsWith(COMPATIBLE_ROUTES))) return authorization;
  const pair = Buffer.from(basic[1], 'base64').toString();
  return `Bearer ${pair.slice(pair.indexOf(':') + 1)}`;
}

/** `Authorization` header for a WebSocket that passes its token as a subprotocol; undefined for any other request. */
function socketAuthorization(url: string, headers: IncomingHttpHeaders): string | undefined {
  if (headers.upgrade === undefined || !SOCKET.test(url)) return undefined;
  const token = TOKEN_PROTOCOL.exec(headers['sec-websocket-protocol'] ?? '')?.[1];
  return token === undefined ? undefined : `Bearer ${Buffer.from(token, 'base64url').toString()}`;
}

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE'];
/** Headers that clients send in addition to those allowed on any page. */
const REQUEST_HEADERS = [
  'Authorization',
  'Content-Type',
  'Content-Encoding',
  'Idempotency-Key',
  'If-None-Match',
  'traceparent',
  'tracestate',
  'X-Session-Id',
];
/** Response headers that a page may read in addition to the default ones. */
const REPLY_HEADERS = ['Allow', 'ETag', 'Retry-After', 'WWW-Authenticate', 'X-Session-Id'];
/** Seconds for which a browser may cache a preflight. */
const PREFLIGHT_SECONDS = 600;
/** Methods that change nothing; other pages cannot read their replies. */
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS']);

/** Pages that may use the server: its own, and those of the listed origins. */
export class AllowedOrigins {
  readonly #all: boolean;
  readonly #origins: ReadonlySet<string>;

  /**
   * @param list origins separated by commas, `*` for all
   * @throws Error for an entry that is not an origin
   */
  constructor(list: string) {
    const entries = itemsOf(list.toLowerCase());
    for (const entry of entries) requireOrigin(entry);
    this.#all = entries.includes('*');
    this.#origins = new Set(entries);
  }

  /** True if any are listed. */
  get configured(): boolean {
    return this.#all || this.#origins.size > 0;
  }

  /** The value of `Access-Control-Allow-Origin` for pages of an origin; false where there is none. */
  grant(origin: string | undefined): string | false {
    if (origin === undefined) return false;
    if (this.#all) return '*';
    return this.#origins.has(origin.toLowerCase()) ? origin : false;
  }

  /**
   * Rejects what a foreign page could do without a preflight: open a WebSocket, or send a simple request that changes
   * something.
   * @throws Problem `forbidden`
   */
  check({ method, headers }: Pick<FastifyRequest, 'method' | 'headers'>): void {
    const { origin, host, upgrade } = headers;
    if (origin === undefined || (upgrade === undefined && SAFE_METHODS.has(method))) return;
    const isOwn = URL.canParse(origin) && new URL(origin).host === host?.toLowerCase();
    if (isOwn || this.grant(origin) !== false) return;
    throw new Problem(
      'forbidden',
      `pages of ${origin} may not use this server; start it with --cors-origins ${origin} (RAGEN_CORS_ORIGINS) to let them`,
    );
  }
}

/**
 * Answers preflights and lets the listed pages read replies. Call it before any hook that rejects requests without a
 * token.
 */
export async function shareWithOrigins(app: FastifyInstance, origins: AllowedOrigins): Promise<void> {
  if (!origins.configured) return;
  await app.register(cors, {
    origin: async (origin: string | undefined) => origins.grant(origin),
    methods: METHODS,
    allowedHeaders: REQUEST_HEADERS,
    exposedHeaders: REPLY_HEADERS,
    maxAge: PREFLIGHT_SECONDS,
    strictPreflight: false,
  });
}

function requireOrigin(entry: string): void {
  if (entry === '*' || (/^https?:/.test(entry) && URL.canParse(entry) && new URL(entry).origin === entry)) {
    return;
  }
  throw new Error(
    `cors-origins: ${JSON.stringify(entry)} is not an origin; list such as https://app.example.org or http://localhost:3000, without a path, or * for all`,
  );
}

/**
 * File descriptors reserved for everything but connections: the database, the journal, sandboxes, remote environments.
 */
const RESERVED_FILES = 256;
const NOTE_EVERY_MS = 60_000;

/** Use of a connection: it has had no request yet, it is idle, or it is in use. */
export type ConnectionUse = 'unused' | 'idle' | 'busy';

interface ConnectionLimitParts {
  /** Most connections of all clients. */
  readonly most: number;
  readonly useOf: (socket: Socket) => ConnectionUse;
  readonly log: Logger;
}

/**
 * Limits connections, so that a client who opens too many leaves room for others and for files. A connection beyond the
 * limit replaces an unused one of the address that has the most. Where all of those are in use, it replaces the oldest
 * of them, or is refused if that address is its own.
 */
export class ConnectionLimit {
  readonly #parts: ConnectionLimitParts;
  /** Sockets by network, in the order of their arrival. */
  readonly #open = new Map<string, Set<Socket>>();
  #count = 0;
  #notedAt = Number.NEGATIVE_INFINITY;

  constructor(parts: ConnectionLimitParts) {
    this.#parts = parts;
  }

  watch(server: Server): void {
    // Must come before any listener that begins to read the socket.
    server.prependListener('connection', (socket: Socket) => this.#add(socket));
  }

  #add(socket: Socket): void {
    const network = networkOf(socket.remoteAddress);
    if (this.#count >= this.#parts.most) {
      this.#note();
      const victim = this.#victim(network);
      (victim ?? socket).destroy();
      if (!victim) return;
      this.#remove(victim);
    }
    const sockets = this.#open.get(network) ?? new Set();
    this.#open.set(network, sockets.add(socket));
    this.#count++;
    socket.once('close', () => this.#remove(socket, network));
  }

  #remove(socket: Socket, network = this.#networkWith(socket)): void {
    const sockets = this.#open.get(network);
    if (!sockets?.delete(socket)) return;
    this.#count--;
    if (sockets.size === 0) this.#open.delete(network);
  }

  #networkWith(socket: Socket): string {
    for (const [network, sockets] of this.#open) if (sockets.has(socket)) return network;
    return '';
  }

  /** The connection to end for a new one; undefined where the new one is refused. */
  #victim(newcomer: string): Socket | undefined {
    let largest = newcomer;
    let most = (this.#open.get(newcomer)?.size ?? 0) + 1;
    for (const [network, { size }] of this.#open) {
      if (size > most) [largest, most] = [network, size];
    }
    const sockets = this.#open.get(largest) ?? [];
    let idle: Socket | undefined;
    let oldest: Socket | undefined;
    for (const socket of sockets) {
      const use = this.#parts.useOf(socket);
      if (use === 'unused') return socket;
      if (use === 'idle') idle ??= socket;
      oldest ??= socket;
    }
    return idle ?? (largest === newcomer ? undefined : oldest);
  }

  #note(): void {
    const now = performance.now();
    if (now - this.#notedAt < NOTE_EVERY_MS) return;
    this.#notedAt = now;
    const { most, log } = this.#parts;
    log.warn(
      { connections: most },
      `the limit of ${counted(most, 'connection')} is reached: idle ones are ended`,
    );
  }
}

/** Most connections that leave descriptors for everything else, by this process's limit (Linux). */
export function connectionsByFiles(limits = (): string => readFileSync('/proc/self/limits', 'utf8')): number {
  let text: string;
  try {
    text = limits();
  } catch {
    return Number.POSITIVE_INFINITY;
  }
  const files = /^Max open files +(\d+)/m.exec(text)?.[1];
  if (files === undefined) return Number.POSITIVE_INFINITY;
  return Math.max(Math.floor(Number(files) / 2), Number(files) - RESERVED_FILES);
}

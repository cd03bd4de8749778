import cors from '@fastify/cors';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { entriesOf } from '../../../shared/http/allowed-hosts.ts';
import { Problem } from '../../problems.ts';

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
    const entries = entriesOf(list);
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

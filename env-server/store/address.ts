import { readFileSync } from 'node:fs';
import type { RedisOptions } from 'iovalkey';

const DEFAULT_PREFIX = 'ragen:';
const DEFAULT_PORT = 6379;
const DEFAULT_SENTINEL_PORT = 26_379;
const FORMS =
  'valkey://[user:password@]host[:port][/database], valkeys:// (TLS), valkey+unix:///path/to/socket, or valkey+sentinel://host[:port],host[:port]/primary-name (valkeys+sentinel:// with TLS)';
const SECURE: ReadonlySet<string> = new Set(['valkeys', 'rediss', 'valkeys+sentinel']);
const SCHEMES: ReadonlySet<string> = new Set([
  'valkey',
  'redis',
  'valkey+unix',
  'valkey+sentinel',
  ...SECURE,
]);

export interface StoreAddress {
  readonly options: RedisOptions;
  /** Prefix of every key. */
  readonly prefix: string;
  /** Without password. */
  readonly shown: string;
}

/**
 * Parses `--store`. `?prefix=` in it changes the prefix of all keys; the password may come from `RAGEN_STORE_PASSWORD`,
 * a certificate authority from the file in `RAGEN_STORE_CA`.
 * @throws Error for any other form
 */
export function storeAddressOf(text: string, env: NodeJS.ProcessEnv = process.env): StoreAddress {
  const shown = withoutPassword(text);
  const { scheme, credentials, hosts, path, query } = partsOf(text, shown);
  const colon = credentials.indexOf(':');
  const user = decoded(colon < 0 ? credentials : credentials.slice(0, colon), shown);
  const password = colon < 0 ? env.RAGEN_STORE_PASSWORD : decoded(credentials.slice(colon + 1), shown);
  const auth = { ...(user !== '' && { username: user }), ...(password ? { password } : {}) };
  const tls = SECURE.has(scheme) ? { tls: trustedBy(env.RAGEN_STORE_CA) } : {};
  const prefix = new URLSearchParams(query).get('prefix') ?? DEFAULT_PREFIX;
  if (scheme === 'valkey+unix') {
    if (path === '') throw new Error(`--store ${shown} names no socket: valkey+unix:///path/to/socket`);
    return { options: { ...auth, path }, prefix, shown };
  }
  if (scheme.endsWith('+sentinel')) {
    const name = path.slice(1);
    if (name === '' || hosts === '')
      throw new Error(
        `--store ${shown} must name sentinels and a primary: valkey+sentinel://host:26379/mymaster`,
      );
    const sentinels = hosts.split(',').map(host => hostAndPort(host, DEFAULT_SENTINEL_PORT, shown));
    const failover = { failoverDetector: true, sentinelPassword: env.RAGEN_SENTINEL_PASSWORD } as const;
    const secure = 'tls' in tls && { ...tls, sentinelTLS: tls.tls, enableTLSForSentinelMode: true };
    return { options: { ...auth, ...failover, ...secure, sentinels, name }, prefix, shown };
  }
  const db = path.length > 1 ? Number(path.slice(1)) : 0;
  if (!Number.isInteger(db) || db < 0)
    throw new Error(`--store ${shown}: the database must be a number from 0 on`);
  return { options: { ...auth, ...tls, ...hostAndPort(hosts, DEFAULT_PORT, shown), db }, prefix, shown };
}

function trustedBy(file: string | undefined): { ca?: Buffer } {
  if (!file) return {};
  try {
    return { ca: readFileSync(file) };
  } catch (error) {
    throw new Error(`RAGEN_STORE_CA cannot be read: ${(error as Error).message}`);
  }
}

interface AddressParts {
  readonly scheme: string;
  /** `user:password`, percent-encoded. */
  readonly credentials: string;
  readonly hosts: string;
  /** With the slash in front, or empty. */
  readonly path: string;
  readonly query: string;
}

/**
 * Credentials end at the last `@` before the path, so that a password with one of these signs fails and is not shown.
 */
function partsOf(text: string, shown: string): AddressParts {
  const [scheme, rest] = splitAt(text, text.indexOf('://'), 3);
  if (!SCHEMES.has(scheme)) throw new Error(`--store must be ${FORMS}; got ${JSON.stringify(shown)}`);
  const [before, query] = splitAt(rest, rest.indexOf('?'), 1);
  const slash = before.indexOf('/');
  const authority = slash < 0 ? before : before.slice(0, slash);
  const at = authority.lastIndexOf('@');
  return {
    scheme,
    credentials: authority.slice(0, Math.max(at, 0)),
    hosts: authority.slice(at + 1),
    path: slash < 0 ? '' : before.slice(slash),
    query,
  };
}

/** Text before and after a separator; everything before, where it is missing. */
function splitAt(text: string, at: number, length: number): [before: string, after: string] {
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + length)];
}

function decoded(text: string, shown: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error(`--store ${shown}: its user and password must be percent-encoded, a % itself as %25`);
  }
}

function hostAndPort(text: string, defaultPort: number, shown: string): { host: string; port: number } {
  const [, host, port] = /^(\[[0-9a-fA-F:.]+\]|[^:[\]]+)(?::(\d{1,5}))?$/.exec(text) ?? [];
  if (host === undefined)
    throw new Error(`--store ${shown} has no host, or one that cannot be read: ${FORMS}`);
  return { host: host.replace(/^\[|\]$/g, ''), port: port === undefined ? defaultPort : Number(port) };
}

/** Without possible credentials: the text between `//` and the last `@`. */
function withoutPassword(text: string): string {
  const [start, at] = [text.indexOf('//'), text.lastIndexOf('@')];
  return start < 0 || at < start ? text : `${text.slice(0, start)}//***${text.slice(at)}`;
}

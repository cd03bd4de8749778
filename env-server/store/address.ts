import { readFileSync } from 'node:fs';
import { Redis, type RedisOptions, type SentinelAddress } from 'iovalkey';

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

/** Limit for a connection, and for the reply of a Sentinel. */
export const CONNECT_MS = 4000;
const NO_CONNECTION = /^connect ETIMEDOUT$/;
const NOT_THE_PROTOCOL = /^(read ECONNRESET|write EPIPE|Connection is closed|Protocol error)/;

/** Remedies by error; `tls`: only of a connection with TLS, or only of one without. */
const REMEDIES: readonly {
  readonly error: RegExp;
  readonly tls?: boolean;
  remedy(scheme: string): string;
}[] = [
  {
    error: NO_CONNECTION,
    tls: true,
    remedy: scheme =>
      `no TLS handshake within ${CONNECT_MS} ms; for a port without TLS write ${scheme.replace('valkeys', 'valkey')}`,
  },
  { error: NO_CONNECTION, tls: false, remedy: () => `no connection within ${CONNECT_MS} ms` },
  {
    error: NOT_THE_PROTOCOL,
    tls: false,
    remedy: scheme => `for a port with TLS write ${scheme.replace('valkey', 'valkeys')}`,
  },
  {
    error: /certificate required|alert handshake failure/,
    remedy: () => 'the store must not ask for client certificates: set tls-auth-clients no',
  },
  {
    error: /self-signed certificate|unable to (get|verify)/,
    remedy: () => 'RAGEN_STORE_CA names the file of the certificate authority to trust',
  },
  {
    error: /\b(NOAUTH|WRONGPASS)\b/,
    remedy: () => 'the password is in the address or in RAGEN_STORE_PASSWORD',
  },
  { error: /^READONLY/, remedy: () => 'it is a replica: name the primary, or its Sentinels' },
];

/** An error of a connection, with the remedy where one is known. */
export function explained(message: string, { tls, sentinels }: RedisOptions): string {
  const scheme = `valkey${tls ? 's' : ''}${sentinels ? '+sentinel' : ''}://`;
  const found = REMEDIES.find(entry => entry.error.test(message) && (entry.tls ?? !!tls) === !!tls);
  return found ? `${message.trim()} (${found.remedy(scheme)})` : message;
}

export interface FoundPrimary {
  /** `host:port` */
  readonly address: string;
  /** The Sentinels, the one that answered first in front. */
  readonly sentinels: SentinelAddress[];
}

/**
 * Asks all Sentinels at once for the primary. The client asks them one after the other, without a limit or a reason.
 * @throws Error with the reason of each, if none knows the primary
 */
export async function primaryOf(options: RedisOptions): Promise<FoundPrimary> {
  const sentinels = (options.sentinels ?? []) as SentinelAddress[];
  const asking = sentinels.map(async (sentinel, i) => ({
    address: await askSentinel(sentinel, options),
    sentinels: [sentinel, ...sentinels.filter((_, other) => other !== i)],
  }));
  try {
    return await Promise.any(asking);
  } catch (error) {
    throw new Error((error as AggregateError).errors.map(({ message }) => message).join('; '));
  }
}

async function askSentinel({ host, port }: SentinelAddress, options: RedisOptions): Promise<string> {
  const client = new Redis({
    host,
    port,
    ...(options.sentinelPassword && { password: options.sentinelPassword }),
    ...(options.sentinelTLS && { tls: options.sentinelTLS }),
    lazyConnect: true,
    enableReadyCheck: false,
    enableOfflineQueue: false,
    retryStrategy: () => null,
    connectTimeout: CONNECT_MS,
    commandTimeout: CONNECT_MS,
  });
  let lost: Error | undefined;
  client.on('error', error => {
    lost ??= error;
  });
  try {
    await client.connect();
    const primary = await client.call('SENTINEL', 'get-master-addr-by-name', options.name!);
    if (primary === null) throw new Error(`knows no primary ${JSON.stringify(options.name)}`);
    return (primary as [host: string, port: string]).join(':');
  } catch (error) {
    throw new Error(`${host}:${port} ${reasonOf(lost ?? (error as Error), options)}`, { cause: error });
  } finally {
    client.disconnect();
  }
}

function reasonOf({ message }: Error, options: RedisOptions): string {
  if (message.startsWith('knows no')) return message;
  if (/unknown command/i.test(message))
    return 'is no Sentinel: for a store without Sentinel write valkey://host:port';
  if (/NOAUTH|WRONGPASS|without any password/.test(message))
    return `${message} (RAGEN_SENTINEL_PASSWORD sets the password of Sentinels)`;
  return explained(message, options);
}

import { Redis, type RedisOptions, type SentinelAddress } from 'iovalkey';

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

import { readFileSync } from 'node:fs';
import { Redis, type RedisOptions } from 'iovalkey';
import type { Logger } from 'pino';
import type { Durability } from '../persistence/durability.ts';
import { Problem } from '../problems.ts';
import { SCRIPTS, type ScriptName } from './scripts.ts';

const COMMAND_MS = 5000;
const CONNECT_MS = 5000;
const MAX_RECONNECT_MS = 1000;
const RETRY_SECONDS = 1;
const DEFAULT_PREFIX = 'ragen:';
const DEFAULT_PORT = 6379;
const DEFAULT_SENTINEL_PORT = 26_379;
/** Replicas that must have a record before its reply, and how long they may take, with `--durability replicated`. */
const WAIT_REPLICAS = 1;
const WAIT_MS = 500;
const FORMS =
  'valkey://[user:password@]host[:port][/database], valkeys:// (TLS), valkey+unix:///path/to/socket, or valkey+sentinel://host[:port],host[:port]/primary-name';
/** First words of the store's own errors: it takes no writes, or none yet. */
const FULL = /^(OOM|MISCONF .{0,200}No space)/;
const UNAVAILABLE =
  /^(MISCONF|NOREPLICAS|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|BUSY|NOAUTH|NOPERM|WRONGPASS)\b/;

export interface StoreAddress {
  readonly options: RedisOptions;
  /** In front of every key. */
  readonly prefix: string;
  /** Without password. */
  readonly shown: string;
}

/**
 * Reads `--store`. `?prefix=` in it changes what all keys begin with; the password may come from `RAGEN_STORE_PASSWORD`, a
 * certificate authority from the file in `RAGEN_STORE_CA`.
 * @throws Error for a text of another form
 */
export function storeAddressOf(text: string, env: NodeJS.ProcessEnv = process.env): StoreAddress {
  const match =
    /^(valkeys?|rediss?|valkey\+unix|valkey\+sentinel):\/\/(?:([^/@]*)@)?([^/?#]*)(\/[^?#]*)?(?:\?(.*))?$/.exec(
      text,
    );
  if (!match) throw new Error(`--store must be ${FORMS}; got ${JSON.stringify(withoutPassword(text))}`);
  const [, scheme, credentials = '', hosts, path = '', query = ''] = match;
  const [user = '', inlinePassword] = credentials.split(':').map(decodeURIComponent);
  const password = inlinePassword ?? env.RAGEN_STORE_PASSWORD;
  const auth = { ...(user !== '' && { username: user }), ...(password ? { password } : {}) };
  const isSecure = scheme === 'valkeys' || scheme === 'rediss';
  const ca = env.RAGEN_STORE_CA;
  const tls = isSecure ? { tls: ca ? { ca: readFileSync(ca) } : {} } : {};
  const prefix = new URLSearchParams(query).get('prefix') ?? DEFAULT_PREFIX;
  const shown = withoutPassword(text);
  if (scheme === 'valkey+unix') {
    if (path === '') throw new Error(`--store ${shown} names no socket: valkey+unix:///path/to/socket`);
    return { options: { ...auth, path }, prefix, shown };
  }
  if (scheme === 'valkey+sentinel') {
    const name = path.slice(1);
    if (name === '' || hosts === '')
      throw new Error(
        `--store ${shown} must name sentinels and a primary: valkey+sentinel://host:26379/mymaster`,
      );
    const sentinels = hosts.split(',').map(host => hostAndPort(host, DEFAULT_SENTINEL_PORT, shown));
    const failover = { failoverDetector: true, sentinelPassword: env.RAGEN_SENTINEL_PASSWORD } as const;
    return { options: { ...auth, ...failover, sentinels, name }, prefix, shown };
  }
  const db = path.length > 1 ? Number(path.slice(1)) : 0;
  if (!Number.isInteger(db) || db < 0)
    throw new Error(`--store ${shown}: the database must be a number from 0 on`);
  return { options: { ...auth, ...tls, ...hostAndPort(hosts, DEFAULT_PORT, shown), db }, prefix, shown };
}

function hostAndPort(text: string, defaultPort: number, shown: string): { host: string; port: number } {
  const [, host, port] = /^(\[[0-9a-fA-F:.]+\]|[^:[\]]+)(?::(\d{1,5}))?$/.exec(text) ?? [];
  if (host === undefined)
    throw new Error(`--store ${shown} has no host, or one that cannot be read: ${FORMS}`);
  return { host: host.replace(/^\[|\]$/g, ''), port: port === undefined ? defaultPort : Number(port) };
}

const withoutPassword = (text: string): string => text.replace(/\/\/[^/@]*@/, '//***@');

type Scripted = {
  readonly [name in ScriptName]: (keys: 0, ...args: (string | number | Buffer)[]) => Promise<unknown>;
};

/** One connection to the store, kept up for the life of the server. */
export class StoreConnection {
  readonly prefix: string;
  readonly durability: Durability;
  readonly #client: Redis & Scripted;
  readonly #log: Logger;
  readonly #shown: string;
  /** Called at every connection but the first, when commands work again. */
  onReconnect: () => void = () => undefined;
  /** The store's era: it changes when another process of the store, or another primary, answers. */
  era = '';
  /** Number of this server among those that have connected. */
  replica = 0;
  #up = false;
  #failure = 'it was not reached yet';
  #closed = false;

  private constructor(address: StoreAddress, durability: Durability, log: Logger) {
    this.prefix = address.prefix;
    this.durability = durability;
    this.#log = log;
    this.#shown = address.shown;
    const client = new Redis({
      ...address.options,
      lazyConnect: true,
      enableOfflineQueue: false,
      enableAutoPipelining: false,
      maxRetriesPerRequest: 0,
      autoResendUnfulfilledCommands: false,
      connectTimeout: CONNECT_MS,
      commandTimeout: COMMAND_MS,
      retryStrategy: (times: number) => Math.min(50 * times, MAX_RECONNECT_MS),
      reconnectOnError: (error: Error) => error.message.startsWith('READONLY'),
    });
    for (const [name, lua] of Object.entries(SCRIPTS)) client.defineCommand(name, { lua });
    this.#client = client as Redis & Scripted;
    client.on('error', error => this.#lost(error.message || String((error as { code?: string }).code)));
    client.on('close', () => this.#lost('the connection was closed'));
  }

  /**
   * Connects and checks that the store suits.
   * @throws Error that says what is wrong with the store, and how to mend it
   */
  static async open(address: StoreAddress, durability: Durability, log: Logger): Promise<StoreConnection> {
    const connection = new StoreConnection(address, durability, log);
    try {
      await connection.#client.connect();
      await connection.#check();
      await connection.#enter();
    } catch (error) {
      connection.close();
      throw new Error(`the store ${address.shown} cannot be used: ${(error as Error).message}`, {
        cause: error,
      });
    }
    connection.#client.on('ready', () => void connection.#enterAgain());
    return connection;
  }

  /** Why the store takes no commands; undefined while it does. */
  get failure(): string | undefined {
    return this.#up ? undefined : this.#failure;
  }

  /**
   * Runs a script.
   * @throws Problem `storage_full`, `storage_failed`; whether the script ran is not known after the latter
   */
  async run(name: ScriptName, ...args: readonly (string | number)[]): Promise<unknown> {
    if (!this.#up) throw unavailable(this.#failure);
    try {
      return await this.#client[name](0, this.prefix, ...args);
    } catch (error) {
      throw storeProblem(error);
    }
  }

  /** Runs a script of writes that a reply acknowledges, and waits for what `--durability` asks. */
  async write(name: ScriptName, ...args: readonly (string | number)[]): Promise<unknown> {
    const written = this.run(name, ...args);
    if (this.durability !== 'replicated') return written;
    const [result, replicas] = await Promise.all([
      written,
      this.command(client => client.wait(WAIT_REPLICAS, WAIT_MS)),
    ]);
    if (replicas < WAIT_REPLICAS)
      throw unavailable(`no replica of the store had the record within ${WAIT_MS} ms; the record stays`);
    return result;
  }

  /** Runs commands of the client, with its errors as problems. */
  async command<T>(work: (client: Redis) => Promise<T>): Promise<T> {
    if (!this.#up) throw unavailable(this.#failure);
    try {
      return await work(this.#client);
    } catch (error) {
      throw storeProblem(error);
    }
  }

  close(): void {
    this.#closed = true;
    this.#up = false;
    this.#client.disconnect();
  }

  #lost(reason: string): void {
    this.#failure = reason;
    if (!this.#up) return;
    this.#up = false;
    if (!this.#closed) this.#log.error({ reason }, `the store ${this.#shown} does not answer: ${reason}`);
  }

  async #check(): Promise<void> {
    const client = this.#client;
    const server = await client.info('server');
    const version = /^(?:valkey|redis)_version:(\d+)\.(\d+)/m.exec(server);
    if (!version || Number(version[1]) < 7) throw new Error('it must be Valkey 7.2 or Redis 7.0, or newer');
    const config = async (name: string): Promise<string | undefined> => {
      try {
        return ((await client.config('GET', name)) as string[])[1];
      } catch {
        return undefined; // managed stores forbid CONFIG
      }
    };
    const policy = await config('maxmemory-policy');
    if (policy !== undefined && policy !== 'noeviction')
      throw new Error(`its maxmemory-policy is ${policy}, which would drop sessions: set it to noeviction`);
    const [appendOnly, fsync] = [await config('appendonly'), await config('appendfsync')];
    if (this.durability === 'fsync' && (appendOnly !== 'yes' || fsync !== 'always'))
      throw new Error('--durability fsync needs a store with appendonly yes and appendfsync always');
    if (appendOnly === 'no' && this.durability !== 'none')
      this.#log.warn(
        'the store keeps nothing over its own restart: set appendonly yes and appendfsync everysec',
      );
  }

  async #enter(): Promise<void> {
    const run = /^run_id:(\w+)/m.exec(await this.#client.info('server'))?.[1] ?? '';
    const [era, replica] = (await this.#client.ragenEra(0, this.prefix, run)) as [string, number];
    this.era = era;
    this.replica ||= replica;
    this.#up = true;
  }

  async #enterAgain(): Promise<void> {
    try {
      await this.#enter();
    } catch (error) {
      this.#lost((error as Error).message);
      // Commands fail until the store is ready; the connection is tried once more.
      if (!this.#closed) this.#client.disconnect(true);
      return;
    }
    this.#log.warn(`the store ${this.#shown} answers again`);
    this.onReconnect();
  }
}

function unavailable(reason: string, cause?: unknown): Problem {
  return new Problem('storage_failed', `the session store does not take the request: ${reason}`, {
    retryAfterSeconds: RETRY_SECONDS,
    cause,
  });
}

/** The problem for a request that the store refused, or did not answer. */
export function storeProblem(error: unknown): unknown {
  if (error instanceof Problem || !(error instanceof Error)) return error;
  const { message } = error;
  // Errors inside of scripts come with the name of the script in front.
  const own = message.replace(/^ERR Error running script[^:]{0,200}: /, '');
  if (FULL.test(own))
    return new Problem('storage_full', 'the session store has no room left', {
      retryAfterSeconds: RETRY_SECONDS,
      cause: error,
    });
  if (UNAVAILABLE.test(own)) return unavailable(own.split('\n')[0].slice(0, 200), error);
  if ('command' in error && /^[A-Z]+ /.test(message)) return error;
  return unavailable(message, error);
}

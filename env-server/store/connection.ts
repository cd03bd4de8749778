import { setImmediate as nextTurn } from 'node:timers/promises';
import { Redis, type RedisOptions, SentinelConnector } from 'iovalkey';
import type { Logger } from 'pino';
import type { Durability } from '../persistence/durability.ts';
import { bootId } from '../persistence/lock.ts';
import { Problem } from '../problems.ts';
import { CONNECT_MS, explained, type FoundPrimary, primaryOf, type StoreAddress } from './address.ts';
import { SCRIPTS, type ScriptName } from './scripts.ts';

const COMMAND_MS = 5000;
/** The same for the client's own commands when it connects. */
const CLIENT_COMMAND_MS = 2 * COMMAND_MS;
const MAX_RECONNECT_MS = 1000;
const RETRY_SECONDS = 1;
/** The error for a command that timed out, the client's too. */
const TIMED_OUT = 'Command timed out';
/** Replicas that must have a record before its reply, and how long they may take, with `--durability replicated`. */
const WAIT_REPLICAS = 1;
const WAIT_MS = 500;
/** Prefixes of the store's own errors: it accepts no writes, or none yet. */
const FULL = /^(OOM|MISCONF .{0,200}No space)/;
const UNAVAILABLE =
  /^(MISCONF|NOREPLICAS|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|BUSY|NOAUTH|NOPERM|WRONGPASS)\b/;

type Scripted = {
  readonly [name in ScriptName]: (keys: 0, ...args: (string | number | Buffer)[]) => Promise<unknown>;
};

/** The part of the client's own connector by which it opens each connection to a Sentinel. */
const Sentinels = SentinelConnector as unknown as new (
  options: unknown,
) => { connectToSentinel(...args: unknown[]): Redis };

/** The client watches each Sentinel and connects to it again, but prints the errors of one that is down. */
class QuietSentinels extends Sentinels {
  override connectToSentinel(...args: unknown[]): Redis {
    return super.connectToSentinel(...args).on('error', () => undefined);
  }
}

/** One connection to the store, kept for the life of the server. */
export class StoreConnection {
  readonly prefix: string;
  readonly durability: Durability;
  readonly #client: Redis & Scripted;
  readonly #log: Logger;
  readonly #shown: string;
  /** Called at every connection but the first, before commands work again. */
  onReconnect: () => void = () => undefined;
  /** Commands since the start of the server that the store rejected, did not answer, or never got. */
  errors = 0;
  /** Number of this server among those that have connected. */
  replica = 0;
  #up = false;
  /** True for a store on this machine that appends to a file: it loses data only if the machine goes down. */
  #outlivesItsProcess = false;
  #failure = 'it was not reached yet';
  #closed = false;

  private constructor(address: StoreAddress, durability: Durability, log: Logger) {
    this.prefix = address.prefix;
    this.durability = durability;
    this.#log = log;
    this.#shown = address.shown;
    const client = new Redis({
      ...address.options,
      ...(address.options.sentinels && { Connector: QuietSentinels as unknown as RedisOptions['Connector'] }),
      lazyConnect: true,
      enableOfflineQueue: false,
      enableAutoPipelining: false,
      maxRetriesPerRequest: 0,
      autoResendUnfulfilledCommands: false,
      connectTimeout: CONNECT_MS,
      commandTimeout: CLIENT_COMMAND_MS,
      sentinelCommandTimeout: COMMAND_MS,
      // The first connection fails with the reason; later ones wait until a Sentinel answers.
      sentinelRetryStrategy: (times: number) =>
        this.replica === 0 ? null : Math.min(10 * times, MAX_RECONNECT_MS),
      retryStrategy: (times: number) => Math.min(50 * times, MAX_RECONNECT_MS),
      reconnectOnError: (error: Error) => error.message.startsWith('READONLY'),
    });
    for (const [name, lua] of Object.entries(SCRIPTS)) client.defineCommand(name, { lua });
    this.#client = client as Redis & Scripted;
    client.on('error', error => this.#lost(error.message || String((error as { code?: string }).code)));
    client.on('close', () => {
      if (this.#up) this.#lost('the connection was closed');
    });
  }

  /**
   * Connects and checks that the store is suitable.
   * @throws Error naming the fault of the store, with the remedy
   */
  static async open(address: StoreAddress, durability: Durability, log: Logger): Promise<StoreConnection> {
    const { options, shown } = address;
    let connection: StoreConnection | undefined;
    let primary: FoundPrimary | undefined;
    try {
      if (options.sentinels) primary = await primaryOf(options);
      const found = primary && { sentinels: primary.sentinels };
      connection = new StoreConnection({ ...address, options: { ...options, ...found } }, durability, log);
      await connection.#client.connect();
      await connection.#check();
      await connection.#enter();
    } catch (error) {
      connection?.close();
      const { message } = error as Error;
      const known = connection && message === 'Connection is closed.' ? connection.#failure : message;
      const where = primary ? `its primary ${primary.address}: ` : '';
      throw new Error(`the store ${shown} cannot be used: ${where}${explained(known, options)}`, {
        cause: error,
      });
    }
    connection.#client.on('ready', () => void connection.#enterAgain());
    connection.#client.on('end', () => connection.#connectAgain());
    return connection;
  }

  /** The reason why the store accepts no commands; undefined while it does. */
  get failure(): string | undefined {
    return this.#up ? undefined : this.#failure;
  }

  /**
   * Runs a script.
   * @throws Problem `storage_full`, `storage_failed`; after the latter it is unknown whether the script ran
   */
  async run(name: ScriptName, ...args: readonly (string | number)[]): Promise<unknown> {
    return this.#asked(() => this.#client[name](0, this.prefix, ...args));
  }

  /** Runs a script with writes that a reply acknowledges, and waits as `--durability` requires. */
  async write(name: ScriptName, ...args: readonly (string | number)[]): Promise<unknown> {
    let hasRun = false;
    const written = this.run(name, ...args).then(result => {
      hasRun = true;
      return result;
    });
    if (this.durability !== 'replicated') return written;
    const wait = () => this.command(client => client.wait(WAIT_REPLICAS, WAIT_MS));
    const waited = wait().then(async replicas => {
      if (!hasRun) await nextTurn();
      if (hasRun) return replicas;
      // The store had lost the script: the client has sent it again, after the command that waits for replicas.
      await written;
      return wait();
    });
    const [result, replicas] = await Promise.all([written, waited]);
    if (replicas < WAIT_REPLICAS)
      throw unavailable(`no replica of the store had the record within ${WAIT_MS} ms; the record stays`);
    return result;
  }

  /** Runs commands of the client, with its errors as problems. */
  async command<T>(work: (client: Redis) => Promise<T>): Promise<T> {
    return this.#asked(() => work(this.#client));
  }

  async #asked<T>(work: () => Promise<T>): Promise<T> {
    try {
      if (!this.#up) throw unavailable(this.#failure);
      return await inTime(work());
    } catch (error) {
      this.errors++;
      const hangs = (error as Error).message === TIMED_OUT && this.#up;
      if (hangs) {
        // The store hangs: requests fail at once until a new connection is answered.
        this.#lost(`it did not answer within ${COMMAND_MS} ms`);
        this.#client.disconnect(true);
      }
      throw storeProblem(error);
    }
  }

  close(): void {
    this.#closed = true;
    this.#up = false;
    this.#client.disconnect();
  }

  /**
   * The client gives up for good when it is disconnected while it asks Sentinels for the primary, which both a
   * fail-over and a hanging store can cause.
   */
  #connectAgain(): void {
    if (this.#closed) return;
    setTimeout(() => {
      // A failure ends it again, and leads back here.
      if (!this.#closed) this.#client.connect().catch((error: Error) => this.#lost(error.message));
    }, MAX_RECONNECT_MS).unref();
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
    const mode = /^(?:server|redis)_mode:(\w+)/m.exec(server)?.[1];
    if (mode === 'sentinel')
      throw new Error('it is a Sentinel: write valkey+sentinel://host:port/primary-name');
    if (mode === 'cluster') throw new Error('it is a cluster: sessions need one primary');
    const config = async (name: string): Promise<string | undefined> => {
      try {
        return ((await client.config('GET', name)) as string[])[1];
      } catch {
        return undefined; // Managed stores forbid CONFIG.
      }
    };
    const policy = await config('maxmemory-policy');
    if (policy !== undefined && policy !== 'noeviction')
      throw new Error(`its maxmemory-policy is ${policy}, which would drop sessions: set it to noeviction`);
    const [appendOnly, fsync] = [await config('appendonly'), await config('appendfsync')];
    if (this.durability === 'fsync' && (appendOnly !== 'yes' || fsync !== 'always'))
      throw new Error('--durability fsync needs a store with appendonly yes and appendfsync always');
    this.#outlivesItsProcess = appendOnly === 'yes' && client.options.path !== undefined;
    if (appendOnly === 'no' && this.durability !== 'none')
      this.#log.warn(
        'the store keeps nothing over its own restart: set appendonly yes and appendfsync everysec',
      );
  }

  async #enter(): Promise<void> {
    // The client itself continues in database 0 where there is no such database.
    if (this.#client.options.db) await this.#client.select(this.#client.options.db);
    const id = /^run_id:(\w+)/m.exec(await this.#client.info('server'))?.[1] ?? '';
    const run = this.#outlivesItsProcess ? bootId() || id : id;
    const [, replica] = (await this.#client.ragenEra(0, this.prefix, run)) as [era: string, replica: number];
    if (this.replica === 0) this.replica = replica;
    else this.onReconnect();
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
  }
}

/**
 * Rejects when the store has not answered in time. After a pause of this process timers run before the answers that came
 * meanwhile are read, so those still count.
 */
function inTime<T>(asked: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = () => reject(new Error(TIMED_OUT));
    const timer = setTimeout(() => setImmediate(late), COMMAND_MS);
    asked.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

function unavailable(reason: string, cause?: unknown): Problem {
  return new Problem('storage_failed', `the session store does not take the request: ${reason}`, {
    retryAfterSeconds: RETRY_SECONDS,
    cause,
  });
}

/** The problem for a request that the store rejected, or did not answer. */
function storeProblem(error: unknown): unknown {
  if (error instanceof Problem || !(error instanceof Error)) return error;
  const { message } = error;
  // Errors inside scripts begin with the name of the script.
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

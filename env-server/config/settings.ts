import { LOG_LEVELS, type LogLevel } from '../../shared/log.ts';
import { PORT_RANGE } from '../../shared/number-option.ts';
import {
  DEEPCODER_DEFAULTS,
  DEFAULT_LEAN_MEMORY_MB,
  type DeepCoderVariable,
} from '../environments/variables.ts';
import { DURABILITIES, type Durability } from '../persistence/durability.ts';

const MAX_REPLICAS = 64;

export interface SettingDeclaration<T> {
  readonly default: T;
  readonly help: string;
  /** Describes an empty default. */
  readonly unset?: string;
  /** Smallest value of a number. */
  readonly minimum?: number;
  readonly maximum?: number;
  readonly integer?: boolean;
  readonly choices?: readonly string[];
}

/** The values of declared settings by name. */
type Values<D> = {
  readonly [name in keyof D]: D[name] extends SettingDeclaration<infer T> ? T : never;
};

const count = (value: number, help: string): SettingDeclaration<number> => ({
  default: value,
  help,
  minimum: 1,
  integer: true,
});

const choice = <T extends string>(value: T, choices: readonly T[], help: string): SettingDeclaration<T> => ({
  default: value,
  help,
  choices,
});

const text = (help: string, unset = 'none'): SettingDeclaration<string> => ({ default: '', help, unset });

const bytes = (help: string): SettingDeclaration<number> => ({ default: 0, help, minimum: 0, integer: true });

const share = (help: string): SettingDeclaration<number> => ({
  default: 0,
  help: `${help}; 0 for three quarters of all`,
  minimum: 0,
  integer: true,
});

const seconds = (value: number, help: string): SettingDeclaration<number> => ({
  default: value,
  help,
  minimum: 0,
});

/** Every setting of the server with its default. */
export const SETTINGS = {
  host: { default: '127.0.0.1', help: 'address to listen on; any but loopback needs tokens' },
  port: { default: 8080, help: 'port to listen on; 0 takes a free one', minimum: 0, ...PORT_RANGE },
  tokens: text('JSON file (or the JSON itself) with tokens: [{"name", "sha256", "scopes"}]; see hash-token'),
  allowedHosts: text(
    'further names for the header Host, separated by commas, e.g. *.example.org; * for any',
    'on loopback none, else any',
  ),
  corsOrigins: text('origins with pages that may use the server, separated by commas; * for all'),
  data: text('folder that keeps custom environments and sessions over a restart'),
  runs: text('folder of training runs to show at /runs/'),
  store: text(
    'store that several servers share: valkey://[user:password@]host[:port], valkeys:// for TLS, valkey+unix:///path/to/socket, valkey+sentinel://host:port,host:port/primary',
  ),
  replicas: {
    ...count(
      1,
      'processes that share the port, for more than one core; they get a Valkey unless --store names one',
    ),
    maximum: MAX_REPLICAS,
  },
  logLevel: choice<LogLevel>('warn', LOG_LEVELS, 'least severe level to log'),
  bodyLimitBytes: count(4 * 1024 * 1024, 'largest request body or frame, in bytes'),
  maxBatchItems: count(4096, 'maximum items of one batch'),
  maxConnections: count(10_000, 'maximum connections of each process'),
  maxFramesInFlight: count(1024, 'maximum unanswered frames of one WebSocket'),
  maxSessions: count(100_000, 'maximum open sessions'),
  maxSessionsPerClient: share('maximum open sessions of one token'),
  maxSessionsPerEnvironment: count(100_000, 'maximum open sessions of one environment'),
  maxBytes: bytes('maximum memory of all sessions, in bytes; 0 for 40 % of the heap limit of each process'),
  maxBytesPerClient: bytes(
    'maximum memory of the sessions of one token, in bytes; 0 for 30 % of the heap limit of each process',
  ),
  maxBytesPerSession: bytes('maximum memory of one session, in bytes; 0 for a 64th of the heap limit'),
  maxCustomEnvironments: count(1000, 'maximum custom environments'),
  maxCustomEnvironmentsPerClient: share('maximum custom environments of one token'),
  idleTtlSeconds: seconds(15 * 60, 'idle time after which a session expires'),
  lifetimeSeconds: seconds(24 * 3600, 'time after which a session expires, idle or not'),
  goneSeconds: seconds(3600, 'how long the id of an ended session gets 410, then 404'),
  stepTimeoutMs: count(60_000, 'how long a client waits for one operation'),
  scriptWorkers: count(2, 'threads that run script environments'),
  scriptTimeMs: count(200, 'processor time limit of a script environment for one reset or step'),
  scriptMemoryMb: count(32, 'memory limit of a script environment in each thread'),
  scriptOutputLength: count(
    262_144,
    'longest state, observation and info of a script environment, in characters',
  ),
  answerValueBytes: count(
    262_144,
    'largest state, observation, info or list of valid actions that a script or remote environment gives, in bytes',
  ),
  headerKeyFile: text(
    'file of the key that encrypts headers of remote environments',
    'headers.key in --data',
  ),
  allowedSecretVariables: {
    default: 'RAGEN_SECRET_*',
    help: 'variables that headers of remote environments may name, separated by commas; NAME@host for one host only',
  },
  remoteHosts: {
    default: '*',
    help: 'hosts that remote environments may use, separated by commas, e.g. *.example.org',
  },
  remoteNetworks: text('private networks that remote environments may use, e.g. 127.0.0.1/32,10.1.0.0/16'),
  heartbeatSeconds: { default: 30, help: 'time between pings to WebSocket clients', minimum: 0.01 },
  drainSeconds: seconds(0, 'time after SIGTERM in which open sessions continue'),
  graceSeconds: seconds(10, 'time for operations in flight to finish when the server ends'),
  checkpointSeconds: seconds(
    30,
    'time between writes of changed sessions to --data; 0: at the end, and where the journal needs room',
  ),
  durability: choice<Durability>(
    'journal',
    DURABILITIES,
    'what kill -9 leaves of sessions: everything acknowledged (journal; fsync: also after a power cut; replicated: also when the primary of --store is lost), the last checkpoint, or nothing',
  ),
  journalMaxMb: {
    default: 256,
    help: 'maximum size of the journal of each process, in megabytes',
    minimum: 0.1,
  },
};

export type Settings = Values<typeof SETTINGS>;

/** Upper bound of a limit that players of DeepCoder set. */
const ceiling = (variable: string, what: string, may: string): SettingDeclaration<number> =>
  count(
    DEEPCODER_DEFAULTS[`RAGEN_DEEPCODER_${variable}` as DeepCoderVariable],
    `maximum ${what} that players of DeepCoder may ${may}`,
  );

/** Every setting of environments; an empty one does not set its variable. */
export const ENVIRONMENT_SETTINGS = {
  dataDir: text('folder of data files of environments (`config.data`)', 'anywhere; with --tokens nowhere'),
  retrieverHosts: text('hosts of retrieval services of SearchQA, separated by commas'),
  leanHosts: text('hosts of Kimina servers of Lean, separated by commas'),
  leanApiKey: text('key for the Kimina server; prefer the variable to the flag'),
  lean: text('path of lean', 'PATH or ~/.elan'),
  leanMemoryMb: count(DEFAULT_LEAN_MEMORY_MB, 'memory of one check by lean, in MiB'),
  leanRepl: text('command that starts the Lean REPL, e.g. "lake env repl"'),
  leanReplDir: text('folder in which the Lean REPL is started'),
  deepcoderPython: text('Python that runs DeepCoder programs', 'python3'),
  deepcoderUnisolated: choice<'0' | '1'>('0', ['0', '1'], '1 runs DeepCoder programs without isolation'),
  deepcoderMaxCpuSeconds: ceiling('MAX_CPU_SECONDS', 'processor seconds', 'give a test'),
  deepcoderMaxWallSeconds: ceiling('MAX_WALL_SECONDS', 'seconds', 'give a test'),
  deepcoderMaxTotalSeconds: ceiling('MAX_TOTAL_SECONDS', 'seconds', 'give all tests of a program'),
  deepcoderMaxMemoryMb: { ...ceiling('MAX_MEMORY_MB', 'memory, in MiB,', 'give a test'), minimum: 64 },
  deepcoderMaxOutputBytes: ceiling('MAX_OUTPUT_BYTES', 'output', 'let a test print'),
  deepcoderMaxTests: ceiling('MAX_TESTS', 'tests', 'bring along'),
  deepcoderSlots: {
    default: DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_SLOTS,
    help: 'DeepCoder programs that run at once; 0 for one on each core',
    minimum: 0,
    integer: true,
  },
  deepcoderGuestSlots: {
    default: DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_GUEST_SLOTS,
    help: 'further DeepCoder programs at once, for tokens that have none running',
    minimum: 0,
    integer: true,
  },
  deepcoderQueueLength: count(
    DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_QUEUE_LENGTH,
    'maximum DeepCoder programs of one token that wait',
  ),
  deepcoderQueueSeconds: count(
    DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_QUEUE_SECONDS,
    'maximum wait of a DeepCoder program',
  ),
};

/** Settings that environments read from process variables, which flags and config files set. */
export type EnvironmentSettings = Values<typeof ENVIRONMENT_SETTINGS>;

/** Every setting by name. */
export const DECLARATIONS: {
  readonly [name in keyof (Settings & EnvironmentSettings)]: SettingDeclaration<string | number>;
} = {
  ...SETTINGS,
  ...ENVIRONMENT_SETTINGS,
};

/** `maxSessions` → `max-sessions`: the flag, without its dashes, and the key in a config file. */
export function flagOf(name: string): string {
  return name.replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`);
}

/** `maxSessions` → `RAGEN_MAX_SESSIONS`. */
export function variableOf(name: string): string {
  return `RAGEN_${flagOf(name).replaceAll('-', '_').toUpperCase()}`;
}

export const DEFAULT_SETTINGS = Object.fromEntries(
  Object.entries(SETTINGS).map(([name, declaration]) => [name, declaration.default]),
) as unknown as Settings;

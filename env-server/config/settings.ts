import { LOG_LEVELS, type LogLevel } from '../../shared/log.ts';
import type { RegistrationLimits } from '../custom/registrations/registration-limits.ts';
import type { GuardSettings } from '../custom/remote/guard.ts';
import { DEEPCODER_DEFAULTS } from '../environments/deepcoder/variables.ts';
import { DEFAULT_LEAN_MEMORY_MB } from '../environments/lean/variables.ts';
import { DURABILITIES, type Durability } from '../persistence/durability.ts';
import type { SessionLimits } from '../sessions/limits/admission.ts';

const MAX_REPLICAS = 64;

/** Settings of a server; {@link SETTINGS} says what each means. */
export interface Settings extends SessionLimits, RegistrationLimits, GuardSettings {
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** Path of a JSON file with tokens, or the JSON itself; empty for none. */
  readonly tokens: string;
  /** Folder of the embedded database; empty keeps everything in memory. */
  readonly data: string;
  /** Host names that requests may be for, separated by commas; see `AllowedHosts`. */
  readonly allowedHosts: string;
  /** Origins with pages that may use the server, separated by commas; see `AllowedOrigins`. */
  readonly corsOrigins: string;
  readonly logLevel: LogLevel;
  readonly bodyLimitBytes: number;
  readonly maxBatchItems: number;
  /** Greatest number of connections of each process. */
  readonly maxConnections: number;
  readonly maxFramesInFlight: number;
  readonly stepTimeoutMs: number;
  readonly scriptWorkers: number;
  readonly scriptTimeMs: number;
  readonly scriptMemoryMb: number;
  readonly scriptOutputLength: number;
  readonly answerValueBytes: number;
  readonly headerKeyFile: string;
  readonly allowedSecretVariables: string;
  readonly heartbeatSeconds: number;
  readonly drainSeconds: number;
  readonly graceSeconds: number;
  readonly checkpointSeconds: number;
  readonly durability: Durability;
  readonly journalMaxMb: number;
  /** Folder of training runs with pages that are served at `/runs/`; empty for none. */
  readonly runs: string;
  /** Address of the store that several servers share; empty keeps sessions in this server. */
  readonly store: string;
  readonly replicas: number;
}

/** Settings that environments read from the variables of the process; a flag or a config file sets those. */
export interface EnvironmentSettings {
  readonly dataDir: string;
  readonly retrieverHosts: string;
  readonly leanHosts: string;
  readonly leanApiKey: string;
  readonly lean: string;
  readonly leanMemoryMb: number;
  readonly leanRepl: string;
  readonly leanReplDir: string;
  readonly deepcoderPython: string;
  readonly deepcoderUnisolated: '0' | '1';
  readonly deepcoderMaxCpuSeconds: number;
  readonly deepcoderMaxWallSeconds: number;
  readonly deepcoderMaxTotalSeconds: number;
  readonly deepcoderMaxMemoryMb: number;
  readonly deepcoderMaxOutputBytes: number;
  readonly deepcoderMaxTests: number;
  readonly deepcoderSlots: number;
  readonly deepcoderGuestSlots: number;
  readonly deepcoderQueueLength: number;
  readonly deepcoderQueueSeconds: number;
}

export interface SettingDeclaration<T> {
  readonly default: T;
  readonly help: string;
  /** Least value of a number. */
  readonly minimum?: number;
  readonly maximum?: number;
  readonly integer?: boolean;
  readonly choices?: readonly string[];
}

type Declarations<T> = { readonly [name in keyof T]: SettingDeclaration<T[name]> };

const count = (value: number, help: string): SettingDeclaration<number> => ({
  default: value,
  help,
  minimum: 1,
  integer: true,
});

const bytes = (help: string): SettingDeclaration<number> => ({ default: 0, help, minimum: 0, integer: true });

const seconds = (value: number, help: string): SettingDeclaration<number> => ({
  default: value,
  help,
  minimum: 0,
});

/** Every setting of the server with its default. */
export const SETTINGS: Declarations<Settings> = {
  host: { default: '127.0.0.1', help: 'address to listen on; any but loopback needs tokens' },
  port: { default: 8080, help: 'port to listen on; 0 takes a free one', minimum: 0, integer: true },
  tokens: {
    default: '',
    help: 'JSON file (or the JSON itself) with tokens: [{"name", "sha256", "scopes"}]; see hash-token',
  },
  allowedHosts: {
    default: '',
    help: 'further names that the header Host may have, separated by commas; *.example.org for all below it, * for any; unless set, any beyond loopback',
  },
  corsOrigins: {
    default: '',
    help: 'origins with pages that may use the server, separated by commas, e.g. https://app.example.org; * for all',
  },
  data: {
    default: '',
    help: 'folder that keeps custom environments and sessions over a restart; without it they are lost when the server stops',
  },
  runs: {
    default: '',
    help: 'folder of training runs to show at /runs/, e.g. ./runs; only tags and notes can be written; none unless given',
  },
  store: {
    default: '',
    help: 'Valkey 7.2 or Redis 7.0 (or newer) that several servers share: valkey://[user:password@]host[:port], valkeys:// for TLS, valkey+unix:///path/to/socket, valkey+sentinel://host:port,host:port/primary',
  },
  replicas: {
    ...count(
      1,
      'processes that serve the port together, for more than one core; they share a Valkey that is started for them unless --store names one',
    ),
    maximum: MAX_REPLICAS,
  },
  logLevel: { default: 'warn', help: 'least severe level to log', choices: LOG_LEVELS },
  bodyLimitBytes: count(4 * 1024 * 1024, 'largest request body or frame'),
  maxBatchItems: count(4096, 'most items of one batch'),
  maxConnections: count(
    10_000,
    'most connections of each process; fewer where it may open fewer files. At the limit idle ones of the address with most connections are ended',
  ),
  maxFramesInFlight: count(1024, 'most unanswered frames of one WebSocket'),
  maxSessions: count(100_000, 'most open sessions'),
  maxSessionsPerClient: count(100_000, 'most open sessions of one token'),
  maxSessionsPerEnvironment: count(100_000, 'most open sessions of one environment'),
  maxBytes: bytes('most memory of all sessions, in bytes; 0 for 40 % of the heap limit of each process'),
  maxBytesPerClient: bytes(
    'most memory of the sessions of one token, in bytes; 0 for 30 % of the heap limit in each process',
  ),
  maxBytesPerSession: bytes('most memory of one session, in bytes; 0 for a 64th of the heap limit'),
  maxCustomEnvironments: count(1000, 'most custom environments'),
  maxCustomEnvironmentsPerClient: {
    default: 0,
    help: 'most custom environments of one token; 0 for three quarters of all',
    minimum: 0,
    integer: true,
  },
  idleTtlSeconds: seconds(15 * 60, 'idle time after which a session expires unless it asked for another'),
  lifetimeSeconds: seconds(24 * 3600, 'time after which a session expires however busy it is'),
  goneSeconds: seconds(3600, 'how long ids of ended sessions answer 410 before 404'),
  stepTimeoutMs: count(60_000, 'how long a client waits for one operation unless it says otherwise'),
  scriptWorkers: count(2, 'threads that run script environments; one script occupies all but one at most'),
  scriptTimeMs: count(200, 'most processor time of a script environment for one reset or step'),
  scriptMemoryMb: count(32, 'most memory of a script environment in each thread'),
  scriptOutputLength: count(
    262_144,
    'longest state, observation and info of a script environment, in characters',
  ),
  answerValueBytes: count(
    262_144,
    'largest state, observation, info or list of valid actions that a script or remote environment gives, in bytes',
  ),
  headerKeyFile: {
    default: '',
    help: 'file of the key that encrypts headers of remote environments, made when it is needed; headers.key in --data without it',
  },
  allowedSecretVariables: {
    default: 'RAGEN_SECRET_*',
    help: 'variables of the server that headers of remote environments may name, separated by commas; NAME@host for one host only',
  },
  remoteHosts: {
    default: '*',
    help: 'hosts that remote environments may be on, separated by commas; *.example.org for all below it',
  },
  remoteNetworks: {
    default: '',
    help: 'private networks that remote environments may be in, e.g. 127.0.0.1/32,10.1.0.0/16; none unless listed',
  },
  heartbeatSeconds: { default: 30, help: 'time between pings to WebSocket clients', minimum: 0.01 },
  drainSeconds: seconds(0, 'time after SIGTERM in which open sessions go on, but the server is not ready'),
  graceSeconds: seconds(10, 'what operations under way get to finish when the server ends'),
  checkpointSeconds: seconds(
    30,
    'time between writes of changed sessions to --data, which keep the journal short; 0 writes them at the end, and where the journal needs room',
  ),
  durability: {
    default: 'journal',
    help: 'what of sessions survives kill -9: all that was acknowledged (journal), also a power cut (fsync) or the loss of the primary of --store (replicated), what was written every --checkpoint-seconds, or nothing',
    choices: DURABILITIES,
  },
  journalMaxMb: {
    default: 256,
    help: 'most megabytes of the journal of each process in --data; an eighth of it may wait in memory while the disk is full',
    minimum: 0.1,
  },
};

/** Every setting of environments; an empty one leaves its variable alone. */
export const ENVIRONMENT_SETTINGS: Declarations<EnvironmentSettings> = {
  dataDir: {
    default: '',
    help: 'folder that data files of environments (`config.data`) must lie under; without it they may lie anywhere, or with --tokens nowhere',
  },
  retrieverHosts: {
    default: '',
    help: 'hosts of retrieval services that SearchQA may ask, separated by commas; none unless listed',
  },
  leanHosts: {
    default: '',
    help: 'hosts of Kimina servers that Lean may ask, separated by commas; none unless listed',
  },
  leanApiKey: { default: '', help: 'key for the Kimina server; better given as a variable than as a flag' },
  lean: { default: '', help: 'path of lean; without it the one on PATH or in ~/.elan is taken' },
  leanMemoryMb: count(DEFAULT_LEAN_MEMORY_MB, 'memory of one check by lean, in MiB'),
  leanRepl: { default: '', help: 'command that starts the Lean REPL, e.g. "lake env repl"' },
  leanReplDir: { default: '', help: 'folder in which the Lean REPL is started' },
  deepcoderPython: { default: '', help: 'Python that runs programs of DeepCoder; python3 without it' },
  deepcoderUnisolated: {
    default: '0',
    help: '1 runs programs of DeepCoder although the machine offers no isolation',
    choices: ['0', '1'],
  },
  deepcoderMaxCpuSeconds: count(
    DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_MAX_CPU_SECONDS,
    'most processor seconds that players of DeepCoder may give a test',
  ),
  deepcoderMaxWallSeconds: count(
    DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_MAX_WALL_SECONDS,
    'most seconds that players of DeepCoder may give a test',
  ),
  deepcoderMaxTotalSeconds: count(
    DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_MAX_TOTAL_SECONDS,
    'most seconds that players of DeepCoder may give all tests of a program',
  ),
  deepcoderMaxMemoryMb: {
    ...count(
      DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_MAX_MEMORY_MB,
      'most memory, in MiB, that players of DeepCoder may give a test',
    ),
    minimum: 64,
  },
  deepcoderMaxOutputBytes: count(
    DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_MAX_OUTPUT_BYTES,
    'most output that players of DeepCoder may let a test print',
  ),
  deepcoderMaxTests: count(
    DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_MAX_TESTS,
    'most tests that players of DeepCoder may bring along',
  ),
  deepcoderSlots: {
    default: DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_SLOTS,
    help: 'programs of DeepCoder that run at once; 0 for one on each processor',
    minimum: 0,
    integer: true,
  },
  deepcoderGuestSlots: {
    default: DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_GUEST_SLOTS,
    help: 'programs of DeepCoder that run beyond these, one for each token that has none running',
    minimum: 0,
    integer: true,
  },
  deepcoderQueueLength: count(
    DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_QUEUE_LENGTH,
    'most programs of DeepCoder of one token that wait to be run',
  ),
  deepcoderQueueSeconds: count(
    DEEPCODER_DEFAULTS.RAGEN_DEEPCODER_QUEUE_SECONDS,
    'longest that a program of DeepCoder waits to be run',
  ),
};

/** Every setting there is, by name. */
export const DECLARATIONS: Declarations<Settings & EnvironmentSettings> = {
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

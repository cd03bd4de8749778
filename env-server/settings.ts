import type { RegistrationLimits } from './custom/registrations.ts';
import type { GuardSettings } from './custom/remote/guard.ts';
import type { SessionLimits } from './sessions/admission.ts';
import { MOST_PROCESSES } from './sessions/placement.ts';

export const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug'] as const;

/** How a server is set up; {@link SETTINGS} says what each means. */
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
  /** Origins whose pages may use the server, separated by commas; see `AllowedOrigins`. */
  readonly corsOrigins: string;
  readonly logLevel: (typeof LOG_LEVELS)[number];
  readonly bodyLimitBytes: number;
  readonly maxBatchItems: number;
  readonly maxFramesInFlight: number;
  readonly stepTimeoutMs: number;
  readonly scriptWorkers: number;
  readonly scriptTimeMs: number;
  readonly scriptMemoryMb: number;
  readonly scriptOutputLength: number;
  readonly heartbeatSeconds: number;
  readonly drainSeconds: number;
  readonly graceSeconds: number;
  readonly checkpointSeconds: number;
  readonly workers: number;
  readonly workerSilenceSeconds: number;
}

/** What environments read from the variables of the process; a flag or a config file sets those. */
export interface EnvironmentSettings {
  readonly dataDir: string;
  readonly retrieverHosts: string;
  readonly leanHosts: string;
  readonly leanApiKey: string;
  readonly leanRepl: string;
  readonly leanReplDir: string;
  readonly deepcoderPython: string;
  readonly deepcoderUnisolated: '0' | '1';
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
    help: 'names that the header Host may have besides those of this machine and the address listened on, separated by commas; *.example.org for all below it, * for any; unless set, any where the server listens on other addresses than loopback',
  },
  corsOrigins: {
    default: '',
    help: 'origins whose pages may use the server (CORS, WebSocket), separated by commas, e.g. https://app.example.org; * for all; none unless listed',
  },
  data: {
    default: '',
    help: 'folder that keeps custom environments and sessions over a restart; without it they are lost when the server stops',
  },
  workers: {
    ...count(1, 'processes that serve the port together; more than one for more than one core'),
    maximum: MOST_PROCESSES,
  },
  workerSilenceSeconds: seconds(
    60,
    'how long one of several processes may give no sign of life before it is killed and started again; 0 for ever',
  ),
  logLevel: { default: 'warn', help: 'least severe level to log', choices: LOG_LEVELS },
  bodyLimitBytes: count(4 * 1024 * 1024, 'largest request body or frame'),
  maxBatchItems: count(4096, 'most items of one batch'),
  maxFramesInFlight: count(1024, 'most unanswered frames of one WebSocket'),
  maxSessions: count(100_000, 'most open sessions'),
  maxSessionsPerClient: count(100_000, 'most open sessions of one token'),
  maxSessionsPerEnvironment: count(100_000, 'most open sessions of one environment'),
  maxCustomEnvironments: count(1000, 'most custom environments'),
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
    'time between writes of changed sessions to --data, for resuming after a crash; 0 writes them only at the end',
  ),
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
  leanRepl: { default: '', help: 'command that starts the Lean REPL, e.g. "lake env repl"' },
  leanReplDir: { default: '', help: 'folder in which the Lean REPL is started' },
  deepcoderPython: { default: '', help: 'Python that runs programs of DeepCoder; python3 without it' },
  deepcoderUnisolated: {
    default: '0',
    help: '1 runs programs of DeepCoder although the machine offers no isolation',
    choices: ['0', '1'],
  },
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

/** Limits of one script. */
export interface ScriptLimits {
  /** Processor time of one call, in milliseconds. */
  readonly timeMs: number;
  readonly memoryBytes: number;
  /** Longest answer of one call, in characters: state, observation and info. */
  readonly outputLength: number;
  /** Of the state, the observation, the info and the list of valid actions each, in bytes of JSON. */
  readonly valueBytes: number;
}

/** What a worker is started with. */
export interface WorkerSetup {
  readonly limits: ScriptLimits;
  readonly engineCode: WebAssembly.Module;
}

/** A call that was told to stop and goes on for so many times its limit is ended from outside, together with its worker. */
export const KILL_FACTOR = 2;
export const STACK_BYTES = 256 * 1024;

/** What the pool sends to a worker; one at a time. */
export interface WorkerRequest {
  readonly script: number;
  /** Sent with the first request for a script. */
  readonly source?: string;
  /** A script that the worker may forget. */
  readonly forget?: number;
  /** Of the bridge; absent to load the script only. */
  readonly request?: string;
}

export type ScriptLimit = 'time' | 'memory' | 'recursion' | 'output';

/** What a worker answers. */
export type WorkerReply =
  | { readonly ok: true; readonly text: string }
  /** The script threw, or is no environment. */
  | { readonly ok: false; readonly fault: string }
  | { readonly ok: false; readonly limit: ScriptLimit };

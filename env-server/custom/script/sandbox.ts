import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import {
  newQuickJSWASMModuleFromVariant,
  newVariant,
  type QuickJSContext,
  type QuickJSHandle,
  type QuickJSRuntime,
  type QuickJSSyncVariant,
  type QuickJSWASMModule,
  Scope,
} from 'quickjs-emscripten-core';
import { Random } from '../../../shared/random.ts';

/**
 * Source text that runs inside the sandbox. `Random` is the server's own class, so a script draws the same numbers as
 * any other environment in the same state. Functions given as text here must not use anything from this module.
 */
const PRELUDE = `'use strict';
const TWO_POW_32 = ${2 ** 32};
${Random.toString()}
(${bridge.toString()})(Random);`;

/** Returns the script's declarations, so that `const step = …` works like `function step`. */
const EXPORTS = `({
  reset: typeof reset === 'function' ? reset : undefined,
  step: typeof step === 'function' ? step : undefined,
  observe: typeof observe === 'function' ? observe : undefined,
  validActions: typeof validActions === 'function' ? validActions : undefined,
})`;

/** Functions that a script must declare. */
const REQUIRED_FUNCTIONS = ['reset', 'step', 'observe'] as const;

interface Script {
  reset(config: unknown, rng: Random, options: unknown): unknown;
  step(state: unknown, action: unknown, rng: Random): unknown;
  observe(state: unknown): unknown;
  validActions?(state: unknown): unknown;
}

/**
 * Makes the function that the host calls with a request as JSON. It answers with the script's state as JSON, a line
 * break, and the rest as JSON: the host passes the state on without parsing it.
 */
function bridge(random: typeof Random): unknown {
  const { parse, stringify } = JSON;
  const promise = Promise;
  const unavailable = (name: string, instead: string) =>
    // An arrow function could not be called with `new`.
    function unavailable(): never {
      throw new Error(`${name} is not available: ${instead}`);
    };
  Math.random = unavailable('Math.random', 'draw from rng') as typeof Math.random;
  globalThis.Date = unavailable(
    'Date',
    'an episode must not depend on the clock',
  ) as unknown as DateConstructor;
  // Clocks, and objects that reveal garbage collection or the engine's queue.
  for (const name of ['performance', 'queueMicrotask', 'WeakRef', 'FinalizationRegistry', 'Atomics']) {
    Reflect.deleteProperty(globalThis, name);
  }

  const text = (what: string, value: unknown): string => {
    if (value instanceof promise)
      throw new Error(`${what} is a promise; scripts answer at once, without async`);
    const json = stringify(value);
    if (json === undefined) throw new Error(`${what} is ${typeof value}, not plain JSON`);
    return json;
  };

  return (script: Script, request: string): string => {
    const { op, config, options, state, action, rng: drawn } = parse(request);
    const rng = random.fromState(drawn);
    let after: unknown;
    let result: { [key: string]: unknown } = {};
    if (op === 'reset') {
      after = script.reset(config, rng, options);
    } else {
      const returned = script.step(state, action, rng);
      if (typeof returned !== 'object' || returned === null || !('state' in returned)) {
        throw new Error('step must return { state, reward, terminated }');
      }
      const { state: next, reward, terminated, truncated, info } = returned as { [key: string]: unknown };
      after = next;
      result = { reward, terminated, truncated, info };
    }
    const json = text(`the state that ${op} gives`, after);
    // The script sees the state as a restored one would look: JSON may have left something out.
    const plain = parse(json);
    result.seen = script.observe(plain);
    if (script.validActions) result.valid = script.validActions(parse(json));
    result.rng = rng.state;
    return `${json}\n${text('the result', result)}`;
  };
}

const SCRIPT_NAME = 'script.js';
const MICROSECONDS_PER_MS = 1000;
const MAX_MESSAGE_LENGTH = 500;
/** Frame of the script in the engine's stack. */
const PLACE = /at (?:(\S+) \()?script\.js:(\d+):(\d+)/;
/** A line that begins with a call, for which the engine knows the position. */
const CALL = /^(?!function\b|async\b)[\w$]+\(/;

const THROWS_NULL = /\bthrow\s*(?:\(\s*)?null\b/;

/** The script was stopped. */
export class LimitReached extends Error {
  readonly limit: ScriptLimit;
  constructor(limit: ScriptLimit) {
    super(limit);
    this.name = 'LimitReached';
    this.limit = limit;
  }
}

/** The script threw, or is not an environment; the message is for its author. */
export class ScriptFault extends Error {
  constructor(message: string) {
    super(message.length > MAX_MESSAGE_LENGTH ? `${message.slice(0, MAX_MESSAGE_LENGTH)}…` : message);
    this.name = 'ScriptFault';
  }
}

/**
 * One script in a separate runtime: a JavaScript engine with no way out. It has no host objects, no modules, and no
 * clock or randomness beyond what each call provides.
 */
export class Sandbox {
  readonly #limits: ScriptLimits;
  readonly #runtime: QuickJSRuntime;
  readonly #context: QuickJSContext;
  readonly #source: string;
  readonly #scope = new Scope();
  #bridge: QuickJSHandle;
  #script: QuickJSHandle;
  #stopAt = 0;

  /** @throws ScriptFault, LimitReached */
  constructor(engine: QuickJSWASMModule, source: string, limits: ScriptLimits) {
    this.#limits = limits;
    this.#source = source;
    this.#runtime = this.#scope.manage(engine.newRuntime());
    this.#runtime.setMemoryLimit(limits.memoryBytes);
    this.#runtime.setMaxStackSize(STACK_BYTES);
    this.#runtime.setInterruptHandler(() => usedMicroseconds() > this.#stopAt);
    this.#context = this.#scope.manage(this.#runtime.newContext());
    this.#bridge = this.#context.undefined;
    this.#script = this.#context.undefined;
    try {
      this.#allowTime();
      this.#bridge = this.#scope.manage(this.#evaluate(PRELUDE, 'prelude.js'));
      this.#evaluate(source, SCRIPT_NAME).dispose();
      this.#script = this.#scope.manage(this.#evaluate(EXPORTS, SCRIPT_NAME));
      for (const name of REQUIRED_FUNCTIONS) this.#require(name);
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  get hasValidActions(): boolean {
    return this.#has('validActions');
  }

  /**
   * Sends a request to the script; see {@link PRELUDE}.
   * @throws ScriptFault, LimitReached
   */
  call(request: string): string {
    const context = this.#context;
    this.#allowTime();
    const argument = context.newString(request);
    try {
      const result = context.callFunction(this.#bridge, context.undefined, this.#script, argument);
      if (result.error) throw this.#reasonOf(result.error);
      const { value } = result;
      try {
        const length = context.getProp(value, 'length').consume(handle => context.getNumber(handle));
        if (length > this.#limits.outputLength) throw new LimitReached('output');
        return context.getString(value);
      } finally {
        value.dispose();
      }
    } finally {
      argument.dispose();
    }
  }

  dispose(): void {
    this.#scope.dispose();
  }

  #allowTime(): void {
    this.#stopAt = usedMicroseconds() + this.#limits.timeMs * MICROSECONDS_PER_MS;
  }

  #evaluate(source: string, name: string): QuickJSHandle {
    const result = this.#context.evalCode(source, name, { type: 'global', strict: true });
    if (result.error) throw this.#reasonOf(result.error);
    return result.value;
  }

  #require(name: string): void {
    if (!this.#has(name)) {
      throw new ScriptFault(
        `the script must declare the functions ${REQUIRED_FUNCTIONS.join(', ')}; ${name} is missing`,
      );
    }
  }

  #has(name: string): boolean {
    return this.#context
      .getProp(this.#script, name)
      .consume(handle => this.#context.typeof(handle) === 'function');
  }

  /** Error to throw for an error of the engine. */
  #reasonOf(handle: QuickJSHandle): Error {
    let error: unknown;
    try {
      if (this.#isPromise(handle)) return new ScriptFault('the script threw a promise');
      error = this.#context.dump(handle);
    } finally {
      handle.dispose();
    }
    // The engine throws null when its memory is too full for an error.
    if (error === null && !THROWS_NULL.test(this.#source)) return new LimitReached('memory');
    if (typeof error !== 'object' || error === null)
      return new ScriptFault(`the script threw ${String(error)}`);
    const { name, message, stack } = error as { name?: unknown; message?: unknown; stack?: unknown };
    const limit = limitOf(name, message);
    if (limit) return new LimitReached(limit);
    // A script may throw anything: an object as a name has no text.
    const title = typeof name === 'string' ? name : 'error';
    const text = typeof message === 'string' ? message : JSON.stringify(error);
    return new ScriptFault(`${title}: ${text}${placeOf(stack, this.#source)}`);
  }

  /** Promises cannot be dumped: `dump` disposes of their handle, and fails for settled ones. */
  #isPromise(handle: QuickJSHandle): boolean {
    const state = this.#context.getPromiseState(handle);
    if (state.type === 'pending') return true;
    if (state.type === 'rejected') {
      state.error.dispose();
      return true;
    }
    if (state.notAPromise) return false;
    state.value.dispose();
    return true;
  }
}

/**
 * The innermost position in the script. For errors that neither a call nor a `throw` raises, such as a property of
 * undefined, the engine reports the first line of the function and column 1; the message then says so.
 */
function placeOf(stack: unknown, source: string): string {
  const match = typeof stack === 'string' ? PLACE.exec(stack) : null;
  if (!match) return '';
  const [, name, line, column] = match;
  const inside = name === '<eval>' ? '' : `in ${name}, `;
  // The parser knows the line only; its column is meaningless.
  if (name === undefined) return ` (line ${line})`;
  if (inside === '' || column !== '1') return ` (${inside}line ${line}, column ${column})`;
  const text = source.split('\n', Number(line))[Number(line) - 1] ?? '';
  if (CALL.test(text)) return ` (${inside}line ${line}, column ${column})`;
  return ` (${inside}which begins at line ${line})`;
}

function limitOf(name: unknown, message: unknown): ScriptLimit | undefined {
  if (name === 'InternalError' && message === 'interrupted') return 'time';
  if (name === 'InternalError' && message === 'out of memory') return 'memory';
  if (name === 'RangeError' && message === 'Maximum call stack size exceeded') return 'recursion';
  return undefined;
}

/** Processor time of this thread, so that a busy machine stops no innocent script. */
function usedMicroseconds(): number {
  const { user, system } = process.threadCpuUsage();
  return user + system;
}

/** The engine's code. Workers share it, so V8 compiles and optimizes it once for all. */
export function compileEngine(): WebAssembly.Module {
  const { resolve } = createRequire(import.meta.url);
  return new WebAssembly.Module(readFileSync(resolve('@jitl/quickjs-ng-wasmfile-release-sync/wasm')));
}

/** The engine that all scripts of a worker run in, each in a separate runtime. */
export async function loadEngine(wasmModule: WebAssembly.Module): Promise<QuickJSWASMModule> {
  // The types describe its CommonJS form, in which `default` holds another `default`.
  const imported: unknown = await import('@jitl/quickjs-ng-wasmfile-release-sync');
  const { default: variant } = imported as { default: QuickJSSyncVariant };
  return newQuickJSWASMModuleFromVariant(newVariant(variant, { wasmModule }));
}

/** Limits of one script. */
export interface ScriptLimits {
  /** Processor time of one call, in milliseconds. */
  readonly timeMs: number;
  readonly memoryBytes: number;
  /** Longest answer of one call, in characters: state, observation and info. */
  readonly outputLength: number;
  /** Largest state, observation, info or list of valid actions, each in bytes of JSON. */
  readonly valueBytes: number;
}

/** Start data of a worker. */
export interface WorkerSetup {
  readonly limits: ScriptLimits;
  readonly engineCode: WebAssembly.Module;
}

/** A call that runs for this many times its limit, despite the request to stop, is ended together with its worker. */
export const KILL_FACTOR = 2;
const STACK_BYTES = 256 * 1024;

/** Message from the pool to a worker; one at a time. */
export interface WorkerRequest {
  readonly script: number;
  /** Sent with the first request for a script. */
  readonly source?: string;
  /** A script that the worker may unload. */
  readonly forget?: number;
  /** Request of the bridge; absent to load the script only. */
  readonly request?: string;
}

export type ScriptLimit = 'time' | 'memory' | 'recursion' | 'output';

/** Reply of a worker. */
export type WorkerReply =
  | { readonly ok: true; readonly text: string }
  /** The script threw, or is not an environment. */
  | { readonly ok: false; readonly fault: string }
  | { readonly ok: false; readonly limit: ScriptLimit };

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import {
  newQuickJSWASMModuleFromVariant,
  newVariant,
  type QuickJSSyncVariant,
  type QuickJSWASMModule,
} from 'quickjs-emscripten-core';

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
export const STACK_BYTES = 256 * 1024;

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

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import {
  newQuickJSWASMModuleFromVariant,
  newVariant,
  type QuickJSSyncVariant,
  type QuickJSWASMModule,
} from 'quickjs-emscripten-core';

/** The engine's code. Workers share it: what V8 has compiled and optimized for one runs in all. */
export function compileEngine(): WebAssembly.Module {
  const { resolve } = createRequire(import.meta.url);
  return new WebAssembly.Module(readFileSync(resolve('@jitl/quickjs-ng-wasmfile-release-sync/wasm')));
}

/** The engine that all scripts of a worker run in, each in a separate runtime. */
export async function loadEngine(wasmModule: WebAssembly.Module): Promise<QuickJSWASMModule> {
  // Its types are those of its CommonJS form, where `default` has another one inside.
  const imported: unknown = await import('@jitl/quickjs-ng-wasmfile-release-sync');
  const { default: variant } = imported as { default: QuickJSSyncVariant };
  return newQuickJSWASMModuleFromVariant(newVariant(variant, { wasmModule }));
}

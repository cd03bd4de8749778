import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { newQuickJSWASMModuleFromVariant, newVariant, type QuickJSWASMModule } from 'quickjs-emscripten-core';

const PACKAGE = '@jitl/quickjs-ng-wasmfile-release-sync';

/** The engine's code. Workers share it: what V8 has compiled and optimized for one runs in all. */
export function compileEngine(): WebAssembly.Module {
  const { resolve } = createRequire(import.meta.url);
  return new WebAssembly.Module(readFileSync(resolve(`${PACKAGE}/wasm`)));
}

/** The engine that all scripts of a worker run in, each in a separate runtime. */
export async function loadEngine(wasmModule: WebAssembly.Module): Promise<QuickJSWASMModule> {
  const { default: variant } = await import('@jitl/quickjs-ng-wasmfile-release-sync');
  return newQuickJSWASMModuleFromVariant(newVariant(variant, { wasmModule }));
}

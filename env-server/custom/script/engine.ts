import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import {
  newQuickJSWASMModuleFromVariant,
  newVariant,
  type QuickJSSyncVariant,
  type QuickJSWASMModule,
} from 'quickjs-emscripten-core';

const PACKAGE = '@jitl/quickjs-ng-wasmfile-release-sync';
const require = createRequire(import.meta.url);

/** The engine's code. Workers share it: what V8 has compiled and optimized for one runs in all. */
export function compileEngine(): WebAssembly.Module {
  return new WebAssembly.Module(readFileSync(require.resolve(`${PACKAGE}/wasm`)));
}

/** The engine that all scripts of a worker run in, each in a separate runtime. */
export function loadEngine(wasmModule: WebAssembly.Module): Promise<QuickJSWASMModule> {
  const { default: variant }: { default: QuickJSSyncVariant } = require(PACKAGE);
  return newQuickJSWASMModuleFromVariant(newVariant(variant, { wasmModule }));
}

/**
 * `npm run kernels`: compiles kernels.c into kernels.wasm with the Clang that PyPI's `ziglang` carries
 * (`pip install ziglang==0.17.1`; `RAGEN_PYTHON` names an interpreter that has it).
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

const FLAGS = [
  ...['-target', 'wasm32-freestanding', '-mcpu=generic+simd128+relaxed_simd', '-O3', '-ffp-contract=off'],
  ...['-fno-builtin', '-nostdlib', '-Wall', '-Wextra', '-Werror', '-Wl,--no-entry', '-Wl,--import-memory'],
  ...['-Wl,--max-memory=4294901760', '-Wl,-z,stack-size=0', '-Wl,--strip-all'],
];

/** @throws Error with the compiler's output */
export function buildKernels(python: string, output: string): void {
  const source = join(import.meta.dirname, 'kernels.c');
  const command = ['-m', 'ziglang', 'cc', ...FLAGS, '-o', output, source];
  const { status, stderr, error } = spawnSync(python, command, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`kernels.c could not be compiled: ${stderr || error?.message}`);
}

if (import.meta.main)
  buildKernels(process.env.RAGEN_PYTHON || 'python3', join(import.meta.dirname, 'kernels.wasm'));

import { execFile, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Json } from '../shared/json.ts';

/** Longest a Python program of a test may take, in milliseconds. */
export const PYTHON_MS = 600_000;
const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;

/** The interpreter of tests with Python clients: `RAGEN_PYTHON`, or `python3` of the PATH where that is unset or empty. */
export const PYTHON = process.env.RAGEN_PYTHON || 'python3';

/**
 * For `t.test`: why programs that import packages cannot be run on this machine, or false.
 * @param packages by the names they are imported under
 */
export function lacksPython(...packages: string[]): string | false {
  const { error, stdout } = spawnSync(PYTHON, ['-c', FIND, ...packages], { encoding: 'utf8' });
  if (error) return `needs ${PYTHON}`;
  const missing = stdout.trim().split(/\s+/).filter(Boolean);
  return missing.length > 0 && `needs python package ${missing.join(', ')}`;
}

/** Prints those of its arguments that cannot be imported; to import them would take seconds. */
const FIND =
  'import sys, importlib.util as u; print(*[name for name in sys.argv[1:] if not u.find_spec(name)])';

/**
 * Runs a Python program and reads the JSON it prints in its last line.
 * @param program address of its file
 * @throws Error with what it wrote where it fails
 */
export async function runPython(program: URL, ...args: string[]): Promise<Json> {
  const { stdout } = await promisify(execFile)(PYTHON, [fileURLToPath(program), ...args], {
    timeout: PYTHON_MS,
    maxBuffer: MAX_OUTPUT_BYTES,
  });
  return JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '') as Json;
}

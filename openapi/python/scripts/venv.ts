import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { PYTHON } from '../../../test/python.test-data.ts';

/** The Python project's folder. */
export const PROJECT = fileURLToPath(new URL('../', import.meta.url));
const FOLDER = fileURLToPath(new URL('../../../node_modules/.cache/ragen-env', import.meta.url));

/**
 * A virtual environment that stays in the cache of node_modules, and its interpreter. pip finds packages as it is
 * configured on this machine (PIP_FIND_LINKS and PIP_NO_INDEX for a machine without network).
 * @param packages what has to be there, as pip is told
 */
export function virtualEnvironment(...packages: readonly string[]): string {
  const python = `${FOLDER}/bin/python`;
  if (!existsSync(python)) execFileSync(PYTHON, ['-m', 'venv', FOLDER], { stdio: 'inherit' });
  execFileSync(python, ['-m', 'pip', 'install', '--quiet', ...packages], { stdio: 'inherit' });
  return python;
}

import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { PYTHON } from './python.test-data.ts';

/** The Python project's folder. */
export const PROJECT = fileURLToPath(new URL('../openapi/python/', import.meta.url));
const CACHE = fileURLToPath(new URL('../node_modules/.cache/', import.meta.url));

/**
 * A virtual environment that stays in the cache of node_modules, and its interpreter. pip finds packages as it is
 * configured on this machine (PIP_FIND_LINKS and PIP_NO_INDEX for a machine without network).
 * @param name of its folder
 * @param packages requirements, as pip takes them
 */
export function virtualEnvironment(name: string, ...packages: readonly string[]): string {
  const folder = CACHE + name;
  const python = `${folder}/bin/python`;
  if (!existsSync(python)) execFileSync(PYTHON, ['-m', 'venv', folder], { stdio: 'inherit' });
  execFileSync(python, ['-m', 'pip', 'install', '--quiet', ...packages], { stdio: 'inherit' });
  return python;
}

/** Packages of others, by version, and the tests that play with them. */
interface Peers {
  /** Day on which all tests last passed with these versions. */
  readonly met: string;
  /** Each has a virtual environment to itself, as some packages cannot be used together. */
  readonly groups: {
    readonly [name: string]: { readonly packages: readonly string[]; readonly tests: readonly string[] };
  };
}

/** The lock of `npm run test:python`. */
export function readPeers(): Peers {
  return JSON.parse(readFileSync(`${PROJECT}peers.json`, 'utf8')) as Peers;
}

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { PYTHON, PYTHON_MS } from '../../../test/python.test-data.ts';

/** The Python project's folder. */
export const PROJECT = fileURLToPath(new URL('../', import.meta.url));
const CACHE = fileURLToPath(new URL('../../../node_modules/.cache/', import.meta.url));

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

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));

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
  return JSON.parse(readFileSync(new URL('../peers.json', import.meta.url), 'utf8')) as Peers;
}

/**
 * Installs each group of packages and runs its tests.
 * @returns the names of the groups that could not be installed or have a test that failed
 */
export function meetPeers(): string[] {
  return Object.entries(readPeers().groups).flatMap(([name, { packages, tests }]) => {
    console.log(`peers: ${name}: ${packages.join(' ')}`);
    let python: string;
    try {
      python = virtualEnvironment(`peers/${name}`, ...packages);
    } catch (error) {
      console.error(`peers: ${name} could not be installed: ${(error as Error).message}`);
      return [name];
    }
    const failed = tests.filter(test => {
      const { status } = spawnSync(process.execPath, [test], {
        cwd: ROOT,
        stdio: 'inherit',
        env: { ...process.env, RAGEN_PYTHON: python, TAP_TIMEOUT: String(PYTHON_MS / 1000) },
      });
      return status !== 0;
    });
    return failed.length > 0 ? [name] : [];
  });
}

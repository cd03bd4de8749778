/**
 * `npm run test:python [-- PYTEST ARGUMENTS]`: types and tests of ragen-env, with the wheel's dependencies in a virtual
 * environment; without arguments also the tests with other packages, by the versions in `peers.json`.
 */

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { createApp } from '../env-server/app.ts';
import { stopSandboxes } from '../env-server/environments/deepcoder/deepcoder.ts';
import { output } from './process.test-data.ts';
import { PYTHON_MS } from './python.test-data.ts';
import { PROJECT, readPeers, virtualEnvironment } from './virtual-environment.ts';
import { hostOf } from './wire.test-data.ts';

const ROOT = join(import.meta.dirname, '..');
const SERVER = join(ROOT, 'env-server/main.ts');

/**
 * Runs the tests of ragen-env against a server in this process.
 * @param python an interpreter with pytest and the package's dependencies
 * @param args for pytest
 */
export async function runPackageTests(
  python: string,
  args: readonly string[] = [],
): Promise<{ code: number; text: string }> {
  const app = await createApp({ logLevel: 'silent' });
  try {
    await app.server.listen({ port: 0, host: '127.0.0.1' });
    const child = spawn(python, ['-m', 'pytest', '-q', ...args], {
      cwd: PROJECT,
      env: {
        ...process.env,
        PYTHONPATH: `${PROJECT}/src`,
        PYTHONDONTWRITEBYTECODE: '1',
        RAGEN_TEST_URL: `http://${hostOf(app)}`,
        RAGEN_TEST_SERVER: JSON.stringify([process.execPath, SERVER]),
      },
    });
    return await output(child);
  } finally {
    stopSandboxes();
    await app.server.close();
  }
}

/**
 * Installs each group of packages and runs its tests.
 * @returns the names of the groups that could not be installed or have a test that failed
 */
function meetPeers(): string[] {
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

async function main(): Promise<void> {
  const packages = ['--editable', `${PROJECT}[gymnasium,fast,serve]`, 'pytest', 'mypy'];
  const python = virtualEnvironment('ragen-env', ...packages);
  execFileSync(python, ['-m', 'mypy', 'src/ragen_env', 'tests'], {
    cwd: PROJECT,
    stdio: 'inherit',
    env: { ...process.env, MYPYPATH: 'tests' },
  });
  const { code, text } = await runPackageTests(python, process.argv.slice(2));
  console.log(text);
  process.exitCode = code;
  if (process.argv.length > 2) return;
  const failed = meetPeers();
  console.log(failed.length > 0 ? `peers: failed with ${failed.join(', ')}` : 'peers: all tests passed');
  if (failed.length > 0) process.exitCode = 1;
}

if (import.meta.main) await main();

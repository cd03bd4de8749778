/**
 * `npm run test:parts`: installs the engines that users run next to ragen, at the versions of parts.ts, and runs the tests that meet
 * them. The rest of the tests leaves those out by name. An installation is kept for the next time.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PARTS, type Part } from './parts.ts';

const ROOT = join(import.meta.dirname, '../..');
const FOLDER = join(ROOT, 'node_modules/.cache/ragen-parts');
const PYTHON = process.env.RAGEN_PYTHON ?? 'python3';

/** The program of a part, installed where it is not there yet. */
function installed(name: string, { packages, bare = [], without, program }: Part): string {
  const place = join(FOLDER, name);
  const done = join(place, [...bare, ...packages][0]);
  const path = join(place, 'bin', program);
  if (existsSync(done)) return path;
  console.log(`installing ${packages.join(', ')} into ${place}`);
  rmSync(place, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  execFileSync(PYTHON, ['-m', 'venv', place], { stdio: 'inherit' });
  const pip = (...args: string[]) =>
    execFileSync(join(place, 'bin/python'), ['-m', 'pip', '--disable-pip-version-check', '-q', ...args], {
      stdio: 'inherit',
    });
  pip('install', ...packages);
  if (bare.length > 0) pip('install', '--no-deps', '--ignore-requires-python', ...bare);
  if (without.length > 0) pip('uninstall', '-y', ...without);
  writeFileSync(done, '');
  return path;
}

for (const [name, part] of Object.entries(PARTS)) {
  const given = part.variable === 'RAGEN_PYTHON' ? undefined : process.env[part.variable];
  const program = given ?? installed(name, part);
  for (const test of part.tests) {
    const { status } = spawnSync(process.execPath, [join(ROOT, test)], {
      cwd: ROOT,
      stdio: 'inherit',
      env: { ...process.env, [part.variable]: program, TAP_TIMEOUT: '900' },
    });
    if (status !== 0) process.exitCode = 1;
  }
}

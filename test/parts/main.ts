/**
 * `npm run test:parts [-- NAME …]`: installs the engines that users run next to ragen, at the versions of parts.ts, and runs the tests
 * that meet them, of all parts or of those named. The rest of the tests leaves those out by name. An installation is kept for the
 * next time.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PARTS, type Part } from './parts.ts';

const ROOT = join(import.meta.dirname, '../..');
const FOLDER = join(ROOT, 'node_modules/.cache/ragen-parts');
const PYTHON = process.env.RAGEN_PYTHON ?? 'python3';

/** The program of a part, installed where it is not there yet. */
function installed(name: string, { packages, bare = [], newer = false, without, program }: Part): string {
  const place = join(FOLDER, name);
  const done = join(place, [...bare, ...packages][0]);
  const path = join(place, 'bin', program);
  if (existsSync(done)) return path;
  console.log(`installing ${packages.join(', ')} into ${place}`);
  rmSync(place, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  const tooOld = ['-c', 'import sys; sys.exit(sys.version_info < (3, 13, 14))'];
  if (newer && spawnSync(PYTHON, tooOld).status !== 0)
    execFileSync(join(import.meta.dirname, 'newer-python.sh'), [place], { stdio: 'inherit' });
  else execFileSync(PYTHON, ['-m', 'venv', place], { stdio: 'inherit' });
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

/** SmolLM2 for the tests that need it, fetched where it is not there yet. */
function model(): string {
  const given = process.env.RAGEN_TEST_SMOLLM2;
  return given ?? execFileSync('npm', ['run', '-s', 'model:smollm2'], { cwd: ROOT, encoding: 'utf8' }).trim();
}

/** Status of a test of a part. */
function run(test: string, { variable, smollm2 }: Part, program: string): number | null {
  const own = { [variable]: program, ...(smollm2 && { RAGEN_TEST_SMOLLM2: model() }) };
  const env = { ...process.env, ...own, TAP_TIMEOUT: '1800' };
  return spawnSync(process.execPath, [join(ROOT, test)], { cwd: ROOT, stdio: 'inherit', env }).status;
}

const asked = process.argv.slice(2);
const unknown = asked.filter(name => !Object.hasOwn(PARTS, name));
if (unknown.length > 0) {
  console.error(`there is no part ${unknown.join(', ')}: choose from ${Object.keys(PARTS).join(', ')}`);
  process.exit(2);
}
for (const [name, part] of Object.entries(PARTS)) {
  if (asked.length > 0 && !asked.includes(name)) continue;
  try {
    const given = part.variable === 'RAGEN_PYTHON' ? undefined : process.env[part.variable];
    const program = given ?? installed(name, part);
    for (const test of part.tests) if (run(test, part, program) !== 0) process.exitCode = 1;
  } catch (error) {
    console.error(`${name} was not installed: ${(error as Error).message}`);
    process.exitCode = 1;
  }
}

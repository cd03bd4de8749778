/**
 * `npm test` after the checks: runs every test file, or those named. Most of a short test's time is the start of its process
 * and the loading of what it imports; so files share one with their folder's, unless they change something of all of it.
 * `npx tap FILE` runs a single file in a process to itself.
 *
 * - `--retry` runs each group that failed a second time, with nothing next to it. Only what fails twice fails the run; what
 *   passes then is named as flaky.
 * - `--times` writes how long files took to `seconds.json`, from which groups are made.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { parse } from 'yaml';
import { canShareProcess, groupFiles } from './grouping.ts';
import { readOutcomes } from './outcome.ts';

const ROOT = process.cwd();
const ENTRIES = '.tap/together';
const FAILED = '.tap/failed';
const SECONDS = join(import.meta.dirname, 'seconds.json');
const TOGETHER = pathToFileURL(join(import.meta.dirname, 'together.test-data.ts')).href;
const TAP = join(import.meta.dirname, '../../node_modules/tap/dist/esm/run.mjs');
/**
 * Most of one group. More files to a group share more loading, which takes about three seconds of processor time; shorter
 * groups keep all cores busy until the end.
 */
const LIMITS = { files: 40, seconds: 120 };
/** Assumed seconds of a file that is not in `seconds.json`, which omits files below `LEAST_SECONDS`. */
const USUAL_SECONDS = 1;
const LEAST_SECONDS = 4;
const MAX_REPLAY_BYTES = 256 * 1024 * 1024;
/**
 * Option of Node.js for test processes. tap notes every module that a process loads, for coverage; nothing here reads that,
 * and it doubles the start. tap replaces a variable of this name by its own, so it is set before tap's recorder loads.
 * `test/compile-cache.test-data.ts` reads it, too.
 */
const NO_RECORD = "--import=data:text/javascript,process.env._TAPJS_PROCESSINFO_EXCLUDE_='/./'";

const { values: options, positionals: named } = parseArgs({
  options: { retry: { type: 'boolean' }, times: { type: 'boolean' } },
  allowPositionals: true,
});
const missing = named.filter(file => !existsSync(join(ROOT, file)));
if (missing.length > 0) {
  console.error(`there is no test file ${missing.join(', ')} in ${ROOT}`);
  process.exit(1);
}
const entries = writeEntries();
rmSync(join(ROOT, FAILED), { force: true });
const { status } = runTap([`--save=${FAILED}`, ...entries.keys()]);
if (options.times) writeTimes();
const failed = options.retry && status === 1 ? savedFailures() : [];
process.exitCode = failed.length > 0 ? runAgain(failed) : (status ?? 1);

/** Writes a program for each group. @returns the files of each, by its path */
function writeEntries(): Map<string, readonly string[]> {
  const { include } = parse(readFileSync(join(ROOT, '.taprc'), 'utf8')) as { include: string[] };
  const files = (
    named.length > 0 ? named : globSync(include, { cwd: ROOT, exclude: ['**/node_modules/**'] })
  ).sort();
  const shared = files.filter(file => canShareProcess(readFileSync(join(ROOT, file), 'utf8')));
  const seconds = JSON.parse(readFileSync(SECONDS, 'utf8')) as { [file: string]: number | undefined };
  const groups = groupFiles(shared, LIMITS, file => seconds[file] ?? USUAL_SECONDS);
  rmSync(join(ROOT, ENTRIES), { recursive: true, force: true });
  mkdirSync(join(ROOT, ENTRIES), { recursive: true });
  const entries = new Map<string, readonly string[]>();
  for (const [index, { name, files }] of groups.entries()) {
    // tap runs files in the order of their names.
    const entry = `${ENTRIES}/${String(index + 1).padStart(3, '0')}-${name}.mjs`;
    const source = `import { runTogether } from '${TOGETHER}';\n\nawait runTogether(${JSON.stringify(ROOT)}, ${JSON.stringify(files, null, 2)});\n`;
    writeFileSync(join(ROOT, entry), source);
    entries.set(entry, files);
  }
  for (const file of files) if (!shared.includes(file)) entries.set(file, [file]);
  return entries;
}

function runTap(args: readonly string[], output: 'inherit' | 'pipe' = 'inherit') {
  const options = [process.env.NODE_OPTIONS, NO_RECORD].filter(Boolean).join(' ');
  const always = [TAP, ...args, `--test-env=NODE_OPTIONS=${options}`];
  return spawnSync(process.execPath, always, {
    cwd: ROOT,
    stdio: ['inherit', output, 'inherit'],
    encoding: 'utf8',
    maxBuffer: MAX_REPLAY_BYTES,
  });
}

/** The entries that failed in the last run; those that crashed or ran out of time are among them. */
function savedFailures(): string[] {
  const file = join(ROOT, FAILED);
  return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : [];
}

function outcomesOf(entry: string) {
  const results = join(ROOT, '.tap/test-results', `${entry}.tap`);
  return readOutcomes(existsSync(results) ? readFileSync(results, 'utf8') : '', entries.get(entry)!);
}

function failedFiles(entry: string): readonly string[] {
  const failed = outcomesOf(entry).filter(outcome => outcome.failed);
  // Where every test passed, the process failed by its exit status.
  return failed.length > 0 ? failed.map(({ file }) => file) : entries.get(entry)!;
}

/**
 * Runs entries that failed a second time, one after the other, and prints the count of all with the second results.
 * @returns the exit status
 */
function runAgain(failed: readonly string[]): number {
  const once = new Map(failed.map(entry => [entry, failedFiles(entry)]));
  console.log(`\nsecond run of what failed: ${[...once.values()].flat().join(' ')}`);
  const { status } = runTap(['--jobs=1', `--save=${FAILED}`, ...failed]);
  const twice = savedFailures();
  const { stdout } = runTap(['replay', '--reporter=tap', ...entries.keys()], 'pipe');
  for (const [entry, files] of once) {
    if (twice.includes(entry))
      for (const file of failedFiles(entry)) console.log(`broken: ${file} failed alone, too`);
    else for (const file of files) console.log(`flaky: ${file} failed once and passed alone`);
  }
  console.log(/^# \{ total:.*$/m.exec(stdout)?.[0] ?? '# the results could not be counted');
  return status ?? 1;
}

function writeTimes(): void {
  const slow = [...entries.keys()]
    .flatMap(outcomesOf)
    .filter(({ seconds }) => seconds >= LEAST_SECONDS)
    .sort((a, b) => (a.file < b.file ? -1 : 1))
    .map(({ file, seconds }) => [file, Math.round(seconds)]);
  writeFileSync(SECONDS, `${JSON.stringify(Object.fromEntries(slow), null, 2)}\n`);
}

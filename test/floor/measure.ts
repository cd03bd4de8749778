/**
 * `npm run coverage [-- <folder>…]`: runs the tests of folders with coverage, and compares each folder's share of lines that
 * its own tests run with the floor in `floor.json`. A folder above its floor raises it; one below fails.
 */
import { spawnSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { compareWithFloor, type FileCoverage, type Floor, folderCoverage } from './floor.ts';

const ROOT = join(import.meta.dirname, '../..');
const FLOOR = join(import.meta.dirname, 'floor.json');
const SUMMARY = join(ROOT, '.tap/report/coverage-summary.json');

const floor: Floor = JSON.parse(readFileSync(FLOOR, 'utf8'));
const asked = process.argv.slice(2).map(folder => folder.replace(/\/$/, ''));
const folders =
  asked.length > 0 ? asked : ['shared', 'site', ...globSync('{env-server,trainer}/*/', { cwd: ROOT })];
const tests = folders.flatMap(folder => globSync(`${folder}/**/*.test.ts`, { cwd: ROOT }));
if (tests.length === 0) throw new Error(`no tests below ${folders.join(', ')}`);

const options = ['--no-disable-coverage', '--coverage-report=json-summary', '--reporter=terse'];
const run = spawnSync(process.execPath, ['node_modules/tap/dist/esm/run.mjs', ...options, ...tests], {
  cwd: ROOT,
  stdio: ['ignore', 'inherit', 'inherit'],
});
const summary: { readonly [file: string]: FileCoverage } = JSON.parse(readFileSync(SUMMARY, 'utf8'));
const { lines, raised, failed } = compareWithFloor(folderCoverage(summary, ROOT, folders), floor);
for (const line of lines) console.log(line);
if (run.status !== 0) {
  console.log('tests failed: the floor stays as it is');
  process.exitCode = 1;
} else if (failed) {
  console.log(
    'Test what you added, next to its source; the lines without a test: npx tap --no-disable-coverage --coverage-report=text <tests>. Where you removed tested code and the rest is as well tested as before, lower the number in test/floor/floor.json and say so in the commit.',
  );
  process.exitCode = 1;
} else {
  writeFileSync(FLOOR, `${JSON.stringify(raised, null, 2)}\n`);
}

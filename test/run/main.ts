/**
 * `npm test` after the checks: runs every test file, or those named. Most of a short test's time is the start of its process
 * and the loading of what it imports; so files that change nothing of the whole process share one with their folder's.
 * `npx tap FILE` runs a single file in a process to itself.
 */
import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { canShareProcess, groupFiles } from './grouping.ts';

const ROOT = join(import.meta.dirname, '../..');
const ENTRIES = '.tap/together';
const MOST_FILES_TOGETHER = 12;

const named = process.argv.slice(2);
const files = (
  named.length > 0 ? named : globSync('*/**/*.test.ts', { cwd: ROOT, exclude: ['node_modules/**'] })
).sort();
const shared = files.filter(file => canShareProcess(readFileSync(join(ROOT, file), 'utf8')));
const groups = groupFiles(shared, MOST_FILES_TOGETHER);

rmSync(join(ROOT, ENTRIES), { recursive: true, force: true });
mkdirSync(join(ROOT, ENTRIES), { recursive: true });
const together = groups.map(({ name, files }) => {
  const entry = `${ENTRIES}/${name}.mjs`;
  const list = JSON.stringify(files, null, 2);
  const source = `import { runTogether } from '../../test/run/together.test-data.ts';\n\nawait runTogether(${JSON.stringify(ROOT)}, ${list});\n`;
  writeFileSync(join(ROOT, entry), source);
  return entry;
});

// Files that run alone mostly wait for processes that they started, groups mostly compute: they take turns.
const alone = files.filter(file => !shared.includes(file));
const order = Array.from({ length: Math.max(alone.length, together.length) }, (_, index) => [
  alone[index],
  together[index],
]).flat();

const run = spawnSync(
  process.execPath,
  [
    join(ROOT, 'node_modules/tap/dist/esm/run.mjs'),
    // tap notes every module that a process loads, for coverage; nothing here reads that, and it doubles the start.
    // `test/compile-cache.test-data.ts` reads this, too.
    '--test-env=_TAPJS_PROCESSINFO_EXCLUDE_=/./',
    ...order.filter(file => file !== undefined),
  ],
  { cwd: ROOT, stdio: 'inherit' },
);
process.exitCode = run.status ?? 1;

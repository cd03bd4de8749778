/**
 * `npm test` after the checks: runs every test file, or those named. Most of a short test's time is the start of its process
 * and the loading of what it imports; so files share one with their folder's, unless they change something of all of it.
 * `npx tap FILE` runs a single file in a process to itself.
 */
import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { canShareProcess, groupFiles } from './grouping.ts';

const ROOT = join(import.meta.dirname, '../..');
const ENTRIES = '.tap/together';
const MOST_FILES_TOGETHER = 14;

const named = process.argv.slice(2);
const { include } = parse(readFileSync(join(ROOT, '.taprc'), 'utf8')) as { include: string[] };
const files = (named.length > 0 ? named : globSync(include, { cwd: ROOT })).sort();
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

const alone = files.filter(file => !shared.includes(file));

const run = spawnSync(
  process.execPath,
  [
    join(ROOT, 'node_modules/tap/dist/esm/run.mjs'),
    // tap notes every module that a process loads, for coverage; nothing here reads that, and it doubles the start.
    // `test/compile-cache.test-data.ts` reads this, too.
    '--test-env=_TAPJS_PROCESSINFO_EXCLUDE_=/./',
    ...together,
    ...alone,
  ],
  { cwd: ROOT, stdio: 'inherit' },
);
process.exitCode = run.status ?? 1;

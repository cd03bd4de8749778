import { join } from 'node:path';
import t from 'tap';

/** Longest that one file may take: what `.taprc` gives to a process. A file that needs less or more says so itself. */
const FILE_MS = 900_000;

/** State of the process that tests may change and must restore. */
const ofProcess = () => ({ cwd: process.cwd(), env: { ...process.env } });

/**
 * Runs test files one after the other in this process. A file fails by name that cannot be loaded, tests nothing, or leaves
 * the process changed.
 */
export async function runTogether(root: string, files: readonly string[]): Promise<void> {
  // After a first `t.teardown` tap ends the root when it has nothing to do, and a file that is being loaded is nothing to it.
  t.teardown = t.after;
  let child = -1;
  for (const file of files) {
    const before = t.counts.total;
    const process = ofProcess();
    t.setTimeout(FILE_MS);
    let fault: unknown;
    await import(join(root, file)).catch(error => {
      fault = error;
    });
    // Tests of a root run in their order: when this one runs, all of the file's have.
    await t.test(file, async t => {
      if (fault !== undefined) throw fault;
      // The last test is not counted yet where it is skipped; each has a number.
      t.ok(t.parent!.counts.total > before || t.options.childId! > child + 1, 'tests something');
      child = t.options.childId!;
      t.strictSame(ofProcess(), process, 'leaves the process as it was');
    });
  }
  t.end();
}

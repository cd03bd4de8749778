import { join } from 'node:path';
import t from 'tap';

/** Runs test files one after the other in this process. A file that cannot be loaded, or that tests nothing, fails by name. */
export async function runTogether(root: string, files: readonly string[]): Promise<void> {
  for (const file of files) {
    const before = t.counts.total;
    let fault: unknown;
    await import(join(root, file)).catch(error => {
      fault = error;
    });
    // Tests of a root run in their order: when this one runs, all of the file's have.
    await t.test(file, async t => {
      if (fault !== undefined) throw fault;
      t.ok(t.parent !== undefined && t.parent.counts.total > before, 'tests something');
    });
  }
}

import { spawnSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, rmdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';

const PAGE_BYTES = 4096;

/** A folder on a separate disk of this many bytes; undefined where this process may not mount one. */
export function smallDisk(t: Test, bytes: number): string | undefined {
  const folder = mkdtempSync(join(tmpdir(), 'ragen-disk-'));
  t.teardown(() => {
    spawnSync('umount', ['-l', folder]);
    rmdirSync(folder);
  });
  const { status } = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${bytes}`, 'tmpfs', folder]);
  return status === 0 ? folder : undefined;
}

/** Takes all the room that is left on a disk; what comes back gives it free again. */
export function fill(folder: string): () => void {
  const filler = join(folder, 'filler');
  try {
    for (;;) appendFileSync(filler, Buffer.alloc(PAGE_BYTES));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  }
  return () => rmSync(filler);
}

import { randomUUID } from 'node:crypto';
import { rename, rm } from 'node:fs/promises';

/** A temporary name next to a file, unique across processes and across machines that share the disk. */
export function temporaryName(path: string): string {
  return `${path}.${randomUUID()}.tmp`;
}

/**
 * Creates or replaces a file atomically: readers see the old file or the whole new one, and the last of several writers
 * wins.
 * @param write writes the temporary file that it is given; when it fails, nothing is left behind
 */
export async function replaceFile(path: string, write: (temporary: string) => Promise<void>): Promise<void> {
  const temporary = temporaryName(path);
  try {
    await write(temporary);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

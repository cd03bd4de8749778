import { randomUUID } from 'node:crypto';
import { rename, rm } from 'node:fs/promises';

/** A name next to a file that no other writer takes, in this process, another one, or on another machine that shares the disk. */
export function temporaryName(path: string): string {
  return `${path}.${randomUUID()}.tmp`;
}

/**
 * Makes or replaces a file at once: a reader sees the old one or the whole new one, and of several writers the last one wins.
 * @param write makes the file under the temporary name that it gets; when it fails, nothing is left behind
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

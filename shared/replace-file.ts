import { randomUUID } from 'node:crypto';
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { rename, rm, writeFile } from 'node:fs/promises';

/** A temporary name next to a file, unique across processes and across machines that share the disk. */
export function temporaryName(path: string): string {
  return `${path}.${randomUUID()}.tmp`;
}

/** The operating system's error with the file's own path; Node leaves it out of an error while writing. */
function withPath(error: unknown, temporary: string, path: string): unknown {
  if (error instanceof Error && 'syscall' in error) {
    const { message } = error;
    error.message = message.includes(temporary)
      ? message.replaceAll(temporary, path)
      : 'path' in error
        ? message
        : `${message} '${path}'`;
    Object.assign(error, { path });
  }
  return error;
}

/**
 * Creates or replaces a file atomically: readers see the old file or the whole new one, and the last of several writers
 * wins.
 * @param content a text, or what writes the temporary file that it is given; when it fails, nothing is left behind
 */
export async function replaceFile(
  path: string,
  content: string | ((temporary: string) => Promise<void>),
): Promise<void> {
  const temporary = temporaryName(path);
  try {
    await (typeof content === 'string' ? writeFile(temporary, content) : content(temporary));
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw withPath(error, temporary, path);
  }
}

/** The same at once, for a text. */
export function replaceFileSync(path: string, text: string): void {
  const temporary = temporaryName(path);
  try {
    writeFileSync(temporary, text);
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw withPath(error, temporary, path);
  }
}

/**
 * Call it before the work that the file is the result of.
 * @throws Error naming the file, where it could not be created or replaced
 */
export function checkReplaceable(path: string): void {
  const temporary = temporaryName(path);
  try {
    writeFileSync(temporary, '');
  } catch (error) {
    throw withPath(error, temporary, path);
  } finally {
    rmSync(temporary, { force: true });
  }
}

import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { rename, rm, writeFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

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

/**
 * Makes a folder and its missing parents. Node's recursive `mkdir` never returns in a place where no folder can be
 * made, such as /proc.
 * @param mode permissions of the folders that are made
 * @throws Error naming the folder that cannot be made and why
 */
export function makeFolder(folder: string, mode?: number): void {
  const missing: string[] = [];
  for (let at = resolve(folder); !existsSync(at); at = dirname(at)) missing.push(at);
  for (const path of missing.reverse()) {
    try {
      mkdirSync(path, { mode });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') continue;
      throw new Error(`cannot make the folder ${path}: ${(error as Error).message}`, { cause: error });
    }
  }
}

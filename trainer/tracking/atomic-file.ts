import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

/** Writes next to the file, then moves into place: readers see the old content or the new. */
export function writeAtomically(file: string, content: string): void {
  writeFileSync(`${file}.partial`, content);
  renameSync(`${file}.partial`, file);
}

/**
 * Makes a folder and those above it that are missing. Node's own recursive `mkdir` never returns where a folder can have no
 * child, such as /proc.
 * @throws Error naming the folder that cannot be made and why
 */
export function makeFolder(folder: string): void {
  const missing: string[] = [];
  for (let at = resolve(folder); !existsSync(at); at = dirname(at)) missing.push(at);
  for (const path of missing.reverse()) {
    try {
      mkdirSync(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') continue;
      throw new Error(`cannot make the folder ${path}: ${(error as Error).message}`, { cause: error });
    }
  }
}

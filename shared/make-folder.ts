import { existsSync, mkdirSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

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

import { constants, enableCompileCache } from 'node:module';
import { homedir } from 'node:os';
import { join } from 'node:path';

/**
 * Keeps compiled modules in the user's cache folder, for this process and those it starts. Called before the first module
 * of TypeScript, it also spares Node.js the program that strips types. The variables of Node.js decide where they are set:
 * `NODE_COMPILE_CACHE` names another folder, `NODE_DISABLE_COMPILE_CACHE=1` keeps none. Where the folder cannot be written
 * to, modules are compiled at each start.
 */
export function keepCompiledModules() {
  if (process.env.NODE_COMPILE_CACHE !== undefined) return;
  let caches = process.env.XDG_CACHE_HOME;
  try {
    caches ??= join(homedir(), '.cache');
  } catch {
    // In a container the user may have no home.
    return;
  }
  const folder = join(caches, 'ragen', 'compiled');
  const { status } = enableCompileCache(folder);
  if (status === constants.compileCacheStatus.ENABLED) process.env.NODE_COMPILE_CACHE = folder;
}

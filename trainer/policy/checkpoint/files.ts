import { rename, stat, writeFile } from 'node:fs/promises';

/** Writes a file under a temporary name that is renamed at the end: a reader sees the old file or the new one. */
export async function writeWhole(path: string, text: string): Promise<void> {
  const temporary = `${path}.${process.pid}.tmp`;
  await writeFile(temporary, text);
  await rename(temporary, path);
}

export async function isThere(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

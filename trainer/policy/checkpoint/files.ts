import { writeFile } from 'node:fs/promises';
import { replaceFile } from '../../../shared/replace-file.ts';

/** Writes a file under a temporary name that is renamed at the end: a reader sees the old file or the new one. */
export function writeWhole(path: string, text: string): Promise<void> {
  return replaceFile(path, temporary => writeFile(temporary, text));
}

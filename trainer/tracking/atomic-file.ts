import { renameSync, writeFileSync } from 'node:fs';

/** Writes next to the file, then moves into place: readers see the old content or the new. */
export function writeAtomically(file: string, content: string): void {
  writeFileSync(`${file}.partial`, content);
  renameSync(`${file}.partial`, file);
}

import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const INDEX = 'README.md';

/** The page that lists the others of a folder of results, by their titles. */
export function resultsIndex(folder: string): string {
  const pages = readdirSync(folder)
    .filter(name => name.endsWith('.md') && name !== INDEX)
    .sort();
  return [
    '# Measured results',
    '',
    '_Reference._ Pages that benchmarks write from the data next to them. Their commands print that of each run with',
    '`--dry-run`. [Results](../reference/results.md) has the pages in a sentence each.',
    '',
    ...pages.map(name => {
      const [, title] = /^# (.+)$/m.exec(readFileSync(join(folder, name), 'utf8')) ?? [];
      return `- [${title ?? name}](./${name})`;
    }),
    '',
  ].join('\n');
}

/** Writes the list of the pages. */
export function writeResultsIndex(folder: string): void {
  writeFileSync(join(folder, INDEX), resultsIndex(folder));
}

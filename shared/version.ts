import { readFileSync } from 'node:fs';

const manifest: { readonly version: string } = JSON.parse(
  readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
);

/** Version of the package, as package.json has it. */
export const VERSION = manifest.version;

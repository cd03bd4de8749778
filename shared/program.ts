import { readFileSync } from 'node:fs';

/** The way a program was installed and started, which decides the commands that messages print. */
interface Start {
  /** True for an installed package, which holds JavaScript; false in the repository. */
  readonly installed: boolean;
  /** True when started by `npx`: the programs may not be on the search path. */
  readonly npx: boolean;
}

const START: Start = {
  installed: import.meta.filename.endsWith('.js'),
  npx: process.env.npm_command === 'exec',
};

/** The words that start a program: its name where it is installed, an npm command in the repository. */
export function programOf(name: string, script: string, { installed, npx }: Start = START): string {
  if (!installed) return `npm run ${script} --`;
  return npx ? `npx ${name}` : name;
}

/** Prefix of printed trainer commands, e.g. `npm run trainer --`. */
export const TRAINER = programOf('ragen', 'trainer');
/** Prefix of printed environment server commands, e.g. `ragen-env-server`. */
export const ENV_SERVER = programOf('ragen-env-server', 'env-server');

const manifest: { readonly version: string } = JSON.parse(
  readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
);

/** Version in package.json. */
export const VERSION = manifest.version;

/** Installation that a program was started from, which decides how the reader starts one. */
interface Start {
  /** From an installed package, which holds JavaScript, and not from the repository. */
  readonly installed: boolean;
  /** By `npx`, so the programs may not be on the search path. */
  readonly npx: boolean;
}

const START: Start = {
  installed: import.meta.filename.endsWith('.js'),
  npx: process.env.npm_command === 'exec',
};

/** The words that start a program of the product: by its name where it is installed, by npm in the repository. */
export function programOf(name: string, script: string, { installed, npx }: Start = START): string {
  if (!installed) return `npm run ${script} --`;
  return npx ? `npx ${name}` : name;
}

/** Prefix of printed commands of the trainer, e.g. `npm run trainer --`. */
export const TRAINER = programOf('ragen', 'trainer');
/** Prefix of printed commands of the environment server, e.g. `ragen-env-server`. */
export const ENV_SERVER = programOf('ragen-env-server', 'env-server');

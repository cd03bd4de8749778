import { readFileSync } from 'node:fs';
import { type ParseArgsConfig, parseArgs } from 'node:util';

/**
 * A flag's value.
 * @throws RangeError unless it is an integer above 0
 */
export function positiveInteger(name: string, text: string | undefined): number {
  const value = Number(text);
  if (Number.isInteger(value) && value > 0) return value;
  throw new RangeError(`--${name} must be a positive integer, got ${text}`);
}

/**
 * The comment that a script begins with: what it measures, how it is called and which flags it takes.
 * @param script path of its file
 */
function scriptHelp(script: string): string {
  const [, comment] = /^\/\*\*\n(.*?)\n \*\//s.exec(readFileSync(script, 'utf8')) ?? [];
  if (comment === undefined) throw new RangeError(`${script} does not begin with a comment`);
  return comment.replaceAll(/^ \* ?/gm, '');
}

/**
 * The flags that a script was called with. `--help` prints the comment that it begins with; flags that it does not take end it
 * with what is wrong.
 * @param script path of its file
 */
export function scriptFlags<const T extends ParseArgsConfig>(
  script: string,
  config: T,
): ReturnType<typeof parseArgs<T>> {
  const { argv } = process;
  if (argv.includes('--help') || argv.includes('-h')) {
    console.log(scriptHelp(script));
    process.exit();
  }
  try {
    return parseArgs(config);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    console.error(`${error.message}\n\n${scriptHelp(script)}`);
    process.exit(2);
  }
}

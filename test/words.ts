/**
 * Turns of phrase that make a page hard to read, with what to write in their place. `node test/words.ts [PATH…]` lists where
 * they stand; `words.test.ts` finds none in the tree.
 */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const FILES =
  '{bench,bin,docker,docs,env-server,install,openapi,shared,site,test,trainer}/**/*.{ts,css,py,md,yaml}';
const TOP = '*.md';
/** Data, generated files, texts that players see as their originals have them, and this list. */
const SKIPPED =
  /node_modules|\.d\.ts$|^test\/(golden|words)|^docs\/(results|log\.md|environments\/)|^openapi\/python\/src\/ragen_env\/(models|operations)\.py|^LICENSE|\/__pycache__\//;

/** Texts of environments that players read, and a list of words: they keep their form. */
const KEPT = /\byou stand (?:at|on)\b|already stands in the row|on a spot of its own|whom whose will/i;

/** A turn, where it counts, and what is better. */
export interface Turn {
  readonly pattern: RegExp;
  readonly rather: string;
  /** Only in lines of these files. */
  readonly files?: RegExp;
}

const CODE = /\.(ts|css|py)$/;

const TURNS: readonly Turn[] = [
  { pattern: /\b(?:un)?told\b/i, rather: 'returned, reported, logged, passed, named' },
  { pattern: /\btells?\b(?! (?:it |them |\w+ )?apart)/i, rather: 'returns, reports, logs, says, shows' },
  { pattern: /\bwhose\b/i, rather: 'with, that has, of which' },
  { pattern: /\b(?:whoever|whatever|whichever)\b/i, rather: 'name who or what' },
  { pattern: /\blearnt\b/i, rather: 'learned' },
  { pattern: /\banew\b/i, rather: 'again' },
  { pattern: /\bladen\b/i, rather: 'overloaded' },
  { pattern: /\bof no account\b/i, rather: 'ignored' },
  { pattern: /\bof no use\b/i, rather: 'not needed, unused' },
  { pattern: /\bonly rises\b/i, rather: 'monotonic' },
  { pattern: /\ball the same\b/i, rather: 'still, anyway' },
  { pattern: /\bgo(?:es)? by\b/i, rather: 'depends on, uses' },
  { pattern: /\bis no more\b/i, rather: 'has ended, is gone' },
  { pattern: /\bgo(?:es)? on\b(?! the\b)/i, rather: 'continues, keeps' },
  { pattern: /\b(?:hold|holds|held) up\b(?! to\b)/i, rather: 'delays, blocks' },
  { pattern: /\bunder way\b/i, rather: 'in progress, in flight' },
  { pattern: /\bwhat (?:came|became) of\b/i, rather: 'the outcome of' },
  { pattern: /\bin the midst\b/i, rather: 'during, in the middle' },
  { pattern: /\bnot all there\b/i, rather: 'incomplete' },
  { pattern: /\bbeside\b/i, rather: 'next to, compared with' },
  { pattern: /\bof (?:its|their) own\b/i, rather: 'separate, own' },
  { pattern: /\bstands? (?:there|here|in|at|on|for|as)\b/i, rather: 'is, lies, means' },
  { pattern: /\bas nobody\b/i, rather: 'because nobody' },
  { pattern: /\bMOST_/, rather: 'MAX_', files: CODE },
  {
    pattern: /\/\*\* (?:Of|What|Whether|Where|How|Who) /,
    rather: 'a noun phrase, or a sentence',
    files: CODE,
  },
];

export interface Finding {
  readonly place: string;
  readonly found: string;
  readonly rather: string;
}

/** The turns in one text. */
export function turnsIn(file: string, text: string): Finding[] {
  return text.split('\n').flatMap((line, index) =>
    TURNS.flatMap(({ pattern, rather, files }) => {
      const found = (!files || files.test(file)) && !KEPT.test(line) ? pattern.exec(line) : null;
      return found ? [{ place: `${file}:${index + 1}`, found: found[0], rather }] : [];
    }),
  );
}

/** The turns in all files, or in those below some paths. */
export function findTurns(paths: readonly string[] = [], root = ROOT): Finding[] {
  const files = [...globSync(FILES, { cwd: root }), ...globSync(TOP, { cwd: root })];
  const wanted = paths.map(path => path.replace(/^\.\/|\/$/g, ''));
  return files
    .filter(file => !SKIPPED.test(file))
    .filter(file => wanted.length === 0 || wanted.some(path => file === path || file.startsWith(`${path}/`)))
    .flatMap(file => turnsIn(file, readFileSync(join(root, file), 'utf8')));
}

if (import.meta.main) {
  const found = findTurns(process.argv.slice(2));
  for (const { place, found: turn, rather } of found) console.log(`${place} "${turn}" -> ${rather}`);
  console.log(`${found.length} turns`);
  process.exitCode = found.length > 0 ? 1 : 0;
}

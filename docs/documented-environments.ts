import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const BLOCK = /^```(\w+)(?:[^\w\n][^\n]*)?\n([\s\S]*?)^```$/gm;
/** The body of a request that registers: a file, a text behind `<<'JSON'`, or one in quotes. */
const REGISTRATION =
  /\/v1\/envs -H \S+ \S+ (?:-d @(docs\/\S+)|-d @- <<'JSON'\n([\s\S]*?)\nJSON|-d '(\{[\s\S]*?\n\})')/;
const REFUSED = /"status": 4\d\d/;

/** A request that registers an environment, as a page of the documentation has it. */
export interface DocumentedEnvironment {
  /** Path of the page, from the root of the repository. */
  readonly page: string;
  readonly env_id: string;
  readonly definition: { readonly kind: string; readonly url?: string; readonly [field: string]: unknown };
}

/** All environments that pages register with curl, but for those that the page shows to be refused. */
export function documentedEnvironments(): DocumentedEnvironment[] {
  const folders = ['docs', ...readdirSync(join(ROOT, 'docs')).map(name => join('docs', name))];
  const pages = folders.flatMap(folder =>
    folder.includes('.') ? [] : readdirSync(join(ROOT, folder)).map(name => join(folder, name)),
  );
  return ['README.md', ...pages.filter(path => path.endsWith('.md'))].flatMap(registeredBy);
}

/** @throws Error where no page, or more than one, registers it */
export function documentedEnvironment(envId: string): DocumentedEnvironment {
  const found = documentedEnvironments().filter(({ env_id }) => env_id === envId);
  if (found.length !== 1) throw new Error(`${found.length} pages register ${envId}`);
  return found[0];
}

function registeredBy(page: string): DocumentedEnvironment[] {
  const blocks = [...readFileSync(join(ROOT, page), 'utf8').matchAll(BLOCK)];
  return blocks.flatMap(([, language, text], i) => {
    const registration = language === 'sh' ? REGISTRATION.exec(text) : null;
    if (!registration || REFUSED.test(blocks[i + 1]?.[2] ?? '')) return [];
    const [, file, heredoc, quoted] = registration;
    const body = file === undefined ? (heredoc ?? quoted) : readFileSync(join(ROOT, file), 'utf8');
    return [{ page, ...JSON.parse(body) }];
  });
}

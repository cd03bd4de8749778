import { posix } from 'node:path';
import { type Asset, Assets, RUN_PAGES } from '../../site/server/assets.ts';

const PAGE = 'site/runs/page.html';
/** Imports of scripts; web servers know the ending `.js`, but not `.ts`. */
const IMPORT = /((?:\bfrom|\bimport)\s*(?:\(\s*)?["'])([./][^"']+)(["'])/g;
const LINK = /\b(?:href|src)="assets\/([^"]+)"/g;
/** An export has bundles alone, without the modules that a map leads to. */
const SOURCE_MAP = /^\/\/# sourceMappingURL=.*\n/m;
const ADDRESS = /\burl\(["']?([^"')]+)["']?\)/g;

/** Files of the pages about runs as a plain web server has them: the page, and all that it loads at any time. */
export async function exportedAssets(): Promise<Map<string, string | Buffer>> {
  const assets = new Assets(RUN_PAGES);
  const files = new Map<string, string | Buffer>();
  const seen = new Set([PAGE]);
  for (const path of seen) {
    const asset = await assets.find(path);
    // Pages of other parts of the site, which an export has none of.
    if (!asset) continue;
    for (const reference of referencesIn(asset, path)) seen.add(reference);
    files.set(targetOf(path), exported(asset));
  }
  return files;
}

const targetOf = (path: string): string =>
  path === PAGE ? 'index.html' : posix.join('assets', path.replace(/\.ts$/, '.js'));

/** Paths of the files that a file names. */
function referencesIn({ body, contentType }: Asset, path: string): string[] {
  if (typeof body !== 'string') return [];
  if (contentType.startsWith('text/html')) return [...body.matchAll(LINK)].map(([, found]) => found);
  const pattern = contentType.startsWith('text/css') ? ADDRESS : IMPORT;
  const group = pattern === ADDRESS ? 1 : 2;
  return [...body.matchAll(pattern)].map(match => posix.join(posix.dirname(path), match[group]));
}

function exported({ body, contentType }: Asset): string | Buffer {
  if (typeof body !== 'string') return body;
  if (contentType.startsWith('text/html')) return body.replaceAll('.ts"', '.js"');
  if (!contentType.startsWith('text/javascript')) return body;
  return body
    .replace(SOURCE_MAP, '')
    .replace(
      IMPORT,
      (_, start: string, name: string, end: string) => `${start}${name.replace(/\.ts$/, '.js')}${end}`,
    );
}

import { hash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** A file as browsers get it. */
export interface Asset {
  readonly contentType: string;
  readonly body: string;
  /** Changes with the content, quoted as HTTP has it. */
  readonly etag: string;
}

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const SCRIPT = '.ts';
/** What browsers may load, by ending. */
const CONTENT_TYPES: { readonly [ending: string]: string } = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.svg': 'image/svg+xml',
  [SCRIPT]: 'text/javascript; charset=utf-8',
};
const TESTS = /\.test(-data)?\.ts$/;

/**
 * Web pages from folders of this repository, without a build: TypeScript is handed out with its types blanked, so
 * that lines and columns stay what they are. Paths are those of the repository, hence relative imports hold for the
 * browser as they do for the compiler.
 */
export class Assets {
  readonly #files: ReadonlySet<string>;
  readonly #made = new Map<string, Promise<Asset>>();

  /** @param folders from the root of the repository, with all folders below them */
  constructor(folders: readonly string[]) {
    this.#files = new Set(
      folders
        .flatMap(folder =>
          readdirSync(join(ROOT, folder), { recursive: true }).map(name => `${folder}/${name}`),
        )
        .filter(isPublic),
    );
  }

  /** @param path from the root of the repository */
  find(path: string): Promise<Asset> | undefined {
    if (!this.#files.has(path)) return undefined;
    let asset = this.#made.get(path);
    if (!asset) {
      asset = makeAsset(path);
      this.#made.set(path, asset);
    }
    return asset;
  }
}

const endingOf = (path: string): string => path.slice(path.lastIndexOf('.'));

function isPublic(path: string): boolean {
  return Object.hasOwn(CONTENT_TYPES, endingOf(path)) && !TESTS.test(path);
}

async function makeAsset(path: string): Promise<Asset> {
  const source = readFileSync(join(ROOT, path), 'utf8');
  const ending = endingOf(path);
  const body = ending === SCRIPT ? await withoutTypes(source, path) : source;
  return { contentType: CONTENT_TYPES[ending], body, etag: `"${hash('sha256', body, 'base64url')}"` };
}

async function withoutTypes(source: string, filename: string): Promise<string> {
  // A server whose page nobody opens does not load the parser.
  const { transformSync } = await import('@swc/wasm-typescript');
  return transformSync(source, { mode: 'strip-only', filename }).code;
}

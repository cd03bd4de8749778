import { hash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { remembered } from '../../shared/remembered.ts';
import { BUNDLES, type Bundle, Bundler } from './bundler.ts';

/** A file for browsers. */
export interface Asset {
  readonly contentType: string;
  /** Bytes of a font, text of any other file. */
  readonly body: string | Buffer;
  /** Changes with the content; quoted as in HTTP. */
  readonly etag: string;
  /** Browsers keep fonts, and revalidate every other file. */
  readonly cacheControl: string;
}

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SCRIPT = '.ts';
const BUNDLE = '.mjs';
const FONT = '.woff2';
/** False in a package: `install/build-package.ts` has removed the types of the pages' scripts. */
const IS_SOURCE = import.meta.filename.endsWith(SCRIPT);
/** Font names contain their version. */
const FOR_EVER = 'public, max-age=31536000, immutable';
/** Content types of the files that browsers may load, by ending. */
const CONTENT_TYPES: { readonly [ending: string]: string } = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.json': 'application/json; charset=utf-8',
  '.svg': 'image/svg+xml',
  [FONT]: 'font/woff2',
  [BUNDLE]: 'text/javascript; charset=utf-8',
  [SCRIPT]: 'text/javascript; charset=utf-8',
};
/** Folders and files that the pages of both programs load. */
export const LOOK = [
  'shared/json.ts',
  'shared/scheduling/serial-queue.ts',
  'shared/text.ts',
  'site/boards',
  'site/components',
  'site/player',
  'site/styles',
];
/** Folders and files of the run pages. */
export const RUN_PAGES = [
  'site/runs',
  'site/compute',
  'shared/run-folder/episode-filter.ts',
  'shared/run-folder/requests.ts',
  'shared/step-info.ts',
  ...LOOK,
];
/** Modules that pages begin with: each is handed out as a bundle, with all that it imports. */
const ENTRIES = ['playground/main', 'reference/main', 'components/gallery', 'runs/main'].map(
  name => `site/${name}.ts`,
);
const MAP = '.map';
const TESTS = /\.test(-data)?\.ts$/;

/** Libraries that pages import by name: name → path for browsers. Served from node_modules. */
export const LIBRARIES: ReadonlyMap<string, string> = new Map([
  ['htm', 'libraries/htm.js'],
  ['preact', 'libraries/preact.js'],
  ['preact/hooks', 'libraries/preact-hooks.js'],
  ['uplot', 'libraries/uplot.js'],
]);
/** Libraries that are small as scripts only: by name, the file and the global that it defines. */
const GLOBALS: { readonly [name: string]: { readonly file: string; readonly global: string } } = {
  uplot: { file: 'uplot/dist/uPlot.iife.min.js', global: 'uPlot' },
};
/** An import of a style sheet by path, or by name from node_modules; with an optional layer. */
const IMPORTED_SHEET = /^@import "([\w./-]+\.css)"(?: layer\((\w+)\))?;$/gm;
/** A file that a style sheet names, relative to the sheet. */
const ADDRESS = /\burl\("([\w./-]+)"\)/g;
const NAME_AT = new Map([...LIBRARIES].map(([name, path]) => [path, name]));
/** An import by name, in code that may be minified. */
const NAMED_IMPORT = /(\bfrom\s*|\bimport\s*(?:\(\s*)?)(["'])([a-z][\w./-]*)\2/g;

/** By path; shared by all servers of a process. */
const made = new Map<string, Promise<Asset>>();

/**
 * Serves web pages from folders of this repository without a build. TypeScript is served with its types blanked, so
 * lines and columns stay the same. Paths are those of the repository, so relative imports mean the same to the browser
 * and the compiler. Imports of libraries by name become relative ones, so pages also work below another path and as
 * static files. A path below `bundles/` is a module joined with its imports, or its source map.
 */
export class Assets {
  readonly #files: ReadonlySet<string>;
  readonly #bundler: Bundler;
  readonly #bundles = new Map<string, Promise<{ readonly code: Asset; readonly map: Asset } | undefined>>();

  /** @param folders folders (with everything below them) or files, relative to the repository root */
  constructor(folders: readonly string[]) {
    this.#files = new Set(
      folders
        .flatMap(folder =>
          folder.endsWith(SCRIPT)
            ? [folder]
            : readdirSync(join(ROOT, folder), { recursive: true }).map(name => `${folder}/${name}`),
        )
        .filter(isPublic),
    );
    this.#bundler = new Bundler(
      async path => (this.#files.has(path) ? String((await this.find(path))!.body) : undefined),
      ENTRIES.filter(path => this.#files.has(path)),
    );
  }

  /** Paths of everything that browsers may load. */
  get paths(): readonly string[] {
    const entries = ENTRIES.filter(path => this.#files.has(path)).map(path => `${BUNDLES}${path}`);
    return [...this.#files, ...NAME_AT.keys(), ...entries];
  }

  /** @param path relative to the repository root, `libraries/NAME.js`, or the path of a module below `bundles/` */
  find(path: string): Promise<Asset | undefined> | undefined {
    if (path.startsWith(BUNDLES)) return this.#bundle(path.slice(BUNDLES.length));
    if (!this.#files.has(path) && !NAME_AT.has(path)) return undefined;
    return remembered(made, path, () => {
      const asset = makeAsset(path);
      asset.catch(() => made.delete(path));
      return asset;
    });
  }

  /** @param name path of a module, or of the source map of its bundle */
  async #bundle(name: string): Promise<Asset | undefined> {
    const isMap = name.endsWith(MAP);
    const path = isMap ? name.slice(0, -MAP.length) : name;
    if (!this.#files.has(path)) return undefined;
    const found = await remembered(this.#bundles, path, () => {
      const bundle = this.#bundler.bundle(path).then(found => found && assetsOf(found));
      bundle.catch(() => this.#bundles.delete(path));
      return bundle;
    });
    return isMap ? found?.map : found?.code;
  }
}

function assetOf(contentType: string, body: string | Buffer, cacheControl = 'no-cache'): Asset {
  return { contentType, body, etag: `"${hash('sha256', body, 'base64url')}"`, cacheControl };
}

const assetsOf = ({ code, map }: Bundle) => ({
  code: assetOf(CONTENT_TYPES[SCRIPT], code),
  map: assetOf(CONTENT_TYPES['.json'], map),
});

const endingOf = (path: string): string => path.slice(path.lastIndexOf('.'));

function isPublic(path: string): boolean {
  return Object.hasOwn(CONTENT_TYPES, endingOf(path)) && !TESTS.test(path);
}

async function makeAsset(path: string): Promise<Asset> {
  const library = NAME_AT.get(path);
  const ending = endingOf(path);
  let body: string | Buffer;
  if (library !== undefined) {
    const { file = library, global } = GLOBALS[library] ?? {};
    const source = withPaths(readFileSync(fileURLToPath(import.meta.resolve(file)), 'utf8'), path);
    body = global === undefined ? source : `${source}\nexport default ${global};\n`;
  } else if (ending === FONT) body = readFileSync(join(ROOT, path));
  else {
    const source = sourceOf(path);
    const script = IS_SOURCE && ending === SCRIPT ? await withoutTypes(source, path) : source;
    body = ending === SCRIPT ? withPaths(script, path) : source;
  }
  const contentType = library === undefined ? CONTENT_TYPES[ending] : CONTENT_TYPES[SCRIPT];
  return assetOf(contentType, body, ending === FONT ? FOR_EVER : undefined);
}

/** A file unchanged; a style sheet together with the sheets it imports, so that browsers send one request. */
function sourceOf(path: string): string {
  const source = readFileSync(join(ROOT, path), 'utf8');
  return endingOf(path) === '.css'
    ? source.replace(IMPORTED_SHEET, (_, name, layer) => sheet(path, name, layer))
    : source;
}

function sheet(importer: string, name: string, layer: string | undefined): string {
  const source = name.startsWith('.')
    ? sourceOf(join(dirname(importer), name)).replace(
        ADDRESS,
        (_, file) => `url("${posix.join(posix.dirname(name), file)}")`,
      )
    : readFileSync(fileURLToPath(import.meta.resolve(name)), 'utf8');
  return layer === undefined ? source : `@layer ${layer} {\n${source}}`;
}

/** Code with library paths in place of their names. */
function withPaths(code: string, path: string): string {
  const up = '../'.repeat(path.split('/').length - 1);
  return code.replace(NAMED_IMPORT, (whole, start: string, quote: string, name: string) => {
    const library = LIBRARIES.get(name);
    return library === undefined ? whole : `${start}${quote}${up}${library}${quote}`;
  });
}

/** The script of a page, with blanks in place of its types. */
export async function withoutTypes(source: string, filename: string): Promise<string> {
  // A package has no types left to remove, so the parser is not one of its dependencies.
  const { transformSync } = await import('@swc/wasm-typescript');
  return transformSync(source, { mode: 'strip-only', filename }).code;
}

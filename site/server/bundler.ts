import { posix } from 'node:path';

/** A script that a page loads, with its source map. */
export interface Bundle {
  readonly code: string;
  readonly map: string;
}

interface Module {
  readonly path: string;
  readonly code: string;
  /** Paths of its static imports, and of its dynamic ones (`import()`). */
  readonly imports: readonly string[];
  readonly later: readonly string[];
  readonly exports: readonly string[];
}

/** Returns the code of a module, with relative imports; undefined for a path that browsers may not load. */
type Read = (path: string) => Promise<string | undefined>;

/** Folder of the bundles, next to those of the modules. */
export const BUNDLES = 'bundles/';
/** Libraries stay separate modules: they may be minified. */
const LIBRARIES = 'libraries/';
/** Registry of the modules in all bundles of a page, so that a shared module is evaluated once. */
const REGISTRY = 'const $ = (globalThis[Symbol.for("ragen.modules")] ??= {});';

/** Statements as the formatter writes them: at the start of a line. */
const IMPORT = /^import (?:([^'"]*) from )?'([^'"]*)';$/gm;
const EXPORT = /^export (?=(?:const|class|function\*?|async function\*?) ([\w$]+))/gm;
const IMPORT_LATER = /\bimport\('([^'"]*)'\)/g;
const OWN_ADDRESS = /\bimport\.meta\.url\b/g;
const OTHER = /^(?:import|export)\b.*/m;
/** Comments that take whole lines, as the formatter writes them: a sixth of a bundle. */
const COMMENT = /^ *\/\/.*$|^ *\/\*(?:[^*]|\*(?!\/))*\*\/$/gm;

const at = (path: string): string => `$[${JSON.stringify(path)}]`;
const joined = (path: string, name: string): string => posix.join(posix.dirname(path), name);
/** Dynamic imports are separate bundles already. */
const isSource = (path: string): boolean => path.endsWith('.ts');
const isLibrary = (path: string): boolean => path.startsWith(LIBRARIES);

/**
 * Joins the modules that a page loads statically into one script, so that a browser sends one request instead of one a
 * module. Modules become functions in evaluation order, and their lines do not change. A dynamic import (`import()`)
 * becomes another bundle, without the modules that the page already has; its libraries are requested with it. Imports have
 * no circles, so bindings are constants. Comments that take whole lines become empty lines.
 */
export class Bundler {
  readonly #read: Read;
  readonly #entries: readonly string[];

  /** @param entries paths of the pages' entry modules */
  constructor(read: Read, entries: readonly string[]) {
    this.#read = read;
    this.#entries = entries;
  }

  /**
   * The bundle of an entry module or of a dynamically imported one; undefined for any other path.
   * @throws Error for code that it cannot join
   */
  async bundle(path: string): Promise<Bundle | undefined> {
    if (this.#entries.includes(path)) return this.#link(path);
    let present: Set<string> | undefined;
    for (const entry of this.#entries) {
      if (!(await this.#laterOf(entry)).has(path)) continue;
      const loaded = new Set((await this.#graph(entry)).map(module => module.path));
      present = present ? new Set([...present].filter(name => loaded.has(name))) : loaded;
    }
    return present && this.#link(path, present);
  }

  /** @param present modules that the page already has; undefined for its entry bundle */
  async #link(path: string, present?: ReadonlySet<string>): Promise<Bundle> {
    const graph = await this.#graph(path);
    const libraries = new Map<string, readonly string[]>();
    for (const later of graph.flatMap(module => module.later)) {
      libraries.set(later, librariesOf(await this.#graph(later)));
    }
    return link(path, graph, libraries, present);
  }

  /** The module and its static imports, in evaluation order. */
  async #graph(path: string): Promise<Module[]> {
    const ordered = new Map<string, Module>();
    const visit = async (current: string, importers: readonly string[]): Promise<void> => {
      if (ordered.has(current)) return;
      if (importers.includes(current)) {
        throw new Error(`a bundle has no circles, but ${[...importers, current].join(' imports ')}`);
      }
      const module = await this.#module(current);
      for (const name of module.imports) {
        if (!isLibrary(name)) await visit(name, [...importers, current]);
      }
      ordered.set(current, module);
    };
    await visit(path, []);
    return [...ordered.values()];
  }

  /** Modules that an entry's modules import dynamically, and those that these import dynamically. */
  async #laterOf(entry: string): Promise<Set<string>> {
    const later = new Set<string>();
    for (const path of [entry]) for (const name of await this.#imported(path)) later.add(name);
    for (const path of later) for (const name of await this.#imported(path)) later.add(name);
    return later;
  }

  async #imported(path: string): Promise<string[]> {
    return (await this.#graph(path)).flatMap(({ later }) => later);
  }

  async #module(path: string): Promise<Module> {
    const code = await this.#read(path);
    if (code === undefined) throw new Error(`${path} is imported, but browsers may not load it`);
    return {
      path,
      code,
      imports: [...code.matchAll(IMPORT)].map(([, , name]) => joined(path, name)),
      later: [...code.matchAll(IMPORT_LATER)].map(([, name]) => joined(path, name)).filter(isSource),
      exports: [...code.matchAll(EXPORT)].map(([, name]) => name),
    };
  }
}

const librariesOf = (modules: readonly Module[]): string[] => [
  ...new Set(modules.flatMap(({ imports }) => imports.filter(isLibrary))),
];

/**
 * @param later libraries of each module that is imported dynamically
 * @param present modules that the page already has; undefined for its entry bundle
 */
function link(
  path: string,
  graph: readonly Module[],
  later: ReadonlyMap<string, readonly string[]>,
  present?: ReadonlySet<string>,
): Bundle {
  const bundle = `${BUNDLES}${path}`;
  const modules = graph.filter(module => !present?.has(module.path));
  const libraries = librariesOf(modules);
  const page = new Set(librariesOf(graph));
  const missing = (name: string) => (later.get(name) ?? []).filter(library => !page.has(library));
  const pieces = modules.map(module => asFunction(module, bundle, missing));
  const names = present ? graph.at(-1)!.exports : [];
  const first = [
    ...libraries.map((name, i) => `import * as $${i} from '${between(bundle, name)}';`),
    REGISTRY,
    ...libraries.map((name, i) => `${at(name)} = $${i};`),
  ].join(' ');
  const last = names.length > 0 ? `export const { ${names.join(', ')} } = ${at(path)};\n` : '';
  const sources = modules.map((module, i) => ({
    source: between(bundle, module.path),
    lines: pieces[i].split('\n').length,
  }));
  const map = `//# sourceMappingURL=${posix.basename(path)}.map`;
  return { code: `${[first, ...pieces].join('\n')}\n${last}${map}\n`, map: lineMap(sources) };
}

/** The address of a file, relative to another. */
function between(from: string, to: string): string {
  const path = posix.relative(posix.dirname(from), to);
  return path.startsWith('.') ? path : `./${path}`;
}

/** Code with empty lines for comments that take whole lines. */
export const withoutComments = (code: string): string =>
  code.replace(COMMENT, comment => '\n'.repeat(comment.split('\n').length - 1));

/** A module as a statement that evaluates it, unless another bundle has done so. One line is added at its end. */
function asFunction(
  { path, code, exports }: Module,
  bundle: string,
  missing: (path: string) => readonly string[],
): string {
  const body = withoutComments(code)
    .replace(IMPORT, (statement, clause: string | undefined, name: string) => {
      const constants = clause === undefined ? '' : constantsOf(clause, at(joined(path, name)));
      return constants + '\n'.repeat(statement.split('\n').length - 1);
    })
    .replace(EXPORT, '')
    .replace(IMPORT_LATER, (_, name: string) => {
      const later = joined(path, name);
      const own = `import('${between(bundle, isSource(later) ? BUNDLES + later : later)}')`;
      const libraries = missing(later).map(library => `import('${between(bundle, library)}')`);
      // One after the other they would cost a round trip each; a library that does not come fails the bundle.
      return libraries.length === 0 ? own : `Promise.all([${[own, ...libraries]}]).then(([view]) => view)`;
    })
    .replace(OWN_ADDRESS, `new URL('${between(bundle, path)}', import.meta.url).href`);
  const other = OTHER.exec(body);
  if (other) throw new Error(`${path}: a bundle cannot have "${other[0]}"`);
  return `${at(path)} ??= (() => { ${body}\nreturn { ${exports.join(', ')} }; })();`;
}

/** Constants for an import clause: a default, a namespace, or names in braces. */
function constantsOf(clause: string, module: string): string {
  const open = clause.indexOf('{');
  const [whole, named] = open < 0 ? [clause, '{}'] : [clause.slice(0, open), clause.slice(open)];
  const name = whole.replace(',', '').trim();
  const constants = name.startsWith('*')
    ? [`const ${name.replace(/^\* as /, '')} = ${module};`]
    : name === ''
      ? []
      : [`const { default: ${name} } = ${module};`];
  const pattern = named.replaceAll(/\s+/g, ' ').replaceAll(' as ', ': ');
  return [...constants, ...(pattern === '{}' ? [] : [`const ${pattern} = ${module};`])].join(' ');
}

/** Lines of one source in a script. */
interface MappedLines {
  /** Address of the source, relative to the script. */
  readonly source: string;
  readonly lines: number;
}

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

/** A number in the form of source maps: base 64, five bits a digit, the sign in the lowest bit. */
function variableLength(value: number): string {
  let rest = value < 0 ? (-value << 1) | 1 : value << 1;
  let text = '';
  do {
    const more = rest >>> 5;
    text += DIGITS[(rest & 31) | (more > 0 ? 32 : 0)];
    rest = more;
  } while (rest > 0);
  return text;
}

/**
 * The source map (version 3) of a script. Its first line has no source; the sources follow, each with one unmapped line
 * at its end.
 */
function lineMap(pieces: readonly MappedLines[]): string {
  let before = 0;
  const lines = pieces.flatMap(({ lines: count }, piece) => {
    const ofSource = count - 1;
    const mapped = Array.from({ length: ofSource }, (_, line) => {
      const source = line === 0 && piece > 0 ? 1 : 0;
      const back = line === 0 ? -before : 1;
      return `A${variableLength(source)}${variableLength(back)}A`;
    });
    before = ofSource - 1;
    return [...mapped, ''];
  });
  return JSON.stringify({
    version: 3,
    sources: pieces.map(({ source }) => source),
    mappings: `;${lines.join(';')}`,
  });
}

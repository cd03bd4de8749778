import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, extname, join, relative, resolve } from 'node:path';
import type { Static, TSchema } from 'typebox';
import { type Document, isMap, isPair, isScalar, isSeq, LineCounter } from 'yaml';
import { type ConfigProblem, checkConfig, withDefaults } from './config-check.ts';
import { attempted, isObject, type Json, type JsonObject } from './json.ts';
import { suggestion } from './text.ts';
import { parseYamlNodes } from './yaml.ts';

/** Key of a config file that lists the files it builds on, by relative path or library name; later files win. */
const EXTENDS = 'extends';
/** Levels of files that extend each other, and such files of one config: each level may name the next twice. */
const DEEPEST_EXTENDS = 16;
const MAX_FILES = 256;
/** Largest config file. */
const MAX_BYTES = 4 * 2 ** 20;

export interface LoadOptions<Schema extends TSchema> {
  readonly schema: Schema;
  /** `a.b=c` overrides, applied in order after the files; the value is YAML. */
  readonly overrides?: readonly string[];
  readonly parts?: NamedParts;
  readonly library?: ConfigLibrary;
  /** Dotted keys with a file or folder. A `./…` or `../…` that exists next to the config file is that one. */
  readonly paths?: readonly string[];
}

/**
 * Config files that can be named wherever a path is allowed: `ragen:base` for the prefix `ragen:` and the file
 * `base.yaml`.
 */
interface ConfigLibrary {
  readonly prefix: string;
  readonly folder: string;
}

/**
 * A key that names one or more files of one folder to build on. In a config file they override what it extends and
 * yield to its own keys; on the command line they override all files and yield to the other overrides. The resolved
 * config keeps the names as a list.
 */
interface NamedParts {
  readonly key: string;
  readonly folder: string;
}

/** A configuration error: every fault with its key, place and remedy. */
export class ConfigError extends Error {
  readonly problems: readonly ConfigProblem[];
  constructor(problems: readonly ConfigProblem[]) {
    super(problems.map(p => `${p.where}: ${p.key === '' ? '' : `\`${p.key}\`: `}${p.message}`).join('\n'));
    this.name = 'ConfigError';
    this.problems = problems;
  }
}

/**
 * Reads a YAML config: the files it `extends` first, then itself, then the command line's overrides, then the
 * schema's defaults; maps merge key by key, everything else is replaced.
 *
 * @example
 * loadConfig('configs/quickstart.yaml', { schema: RunSettings, overrides: ['training.steps=20'] });
 *
 * @throws ConfigError naming each wrong key, the file and line it came from, and the valid choices
 */
export function loadConfig<Schema extends TSchema>(
  file: string,
  options: LoadOptions<Schema>,
): Static<Schema> {
  const { parts, library, overrides = [] } = options;
  const [naming, others] = splitOverrides(overrides, parts);
  const named = naming.map(override => parseOverride(override));
  const layers = [
    ...readLayers(configFile(file, '.', library, 'command line'), [], options),
    ...named.flatMap(({ value }, i) => partLayers(value, parts!, `command line (${naming[i]})`, [], library)),
  ];
  const origins = new Map<string, string>();
  let value: Json = {};
  for (const layer of layers) {
    value = mergeConfig(value, layer.value);
    for (const [key, line] of layer.lines) origins.set(key, `${shown(layer.file)}:${line}`);
  }
  if (named.length > 0) value = mergeConfig(value, { [parts!.key]: named.at(-1)!.value });
  if (parts) value = withNames(value, parts.key);
  value = overrideConfig(value, others, origins);
  return validateConfig(
    value,
    options.schema,
    key => originOf(key, origins) ?? shown(configFile(file, '.', library, 'command line')),
  );
}

/**
 * Adds the schema's defaults and checks the value.
 * @param origin where each key was set, for the error message
 * @throws ConfigError
 */
export function validateConfig<Schema extends TSchema>(
  value: Json,
  schema: Schema,
  origin: (key: string) => string = () => 'config',
): Static<Schema> {
  const filled = withDefaults(schema, value);
  const problems = checkConfig(schema, filled, origin);
  if (problems.length > 0) throw new ConfigError(problems);
  return filled as Static<Schema>;
}

/** Merges maps recursively, `over` winning; arrays, scalars and null replace. */
export function mergeConfig(base: Json, over: Json): Json {
  if (!isObject(base) || !isObject(over)) return over;
  const merged = Object.entries(over).map(([key, value]): [string, Json] => [
    key,
    Object.hasOwn(base, key) ? mergeConfig(base[key], value) : value,
  ]);
  return Object.fromEntries([...Object.entries(base), ...merged]);
}

/**
 * Applies `a.b=c` overrides in order. A map is merged into the existing one; an empty map, `a={}`, replaces it.
 * @param origins dotted key → where it was set; updated for the overridden keys
 * @throws ConfigError when an override is malformed
 */
export function overrideConfig(
  value: Json,
  overrides: readonly string[],
  origins: Map<string, string> = new Map(),
): Json {
  let result = value;
  for (const override of overrides) {
    const { path, value: leaf } = parseOverride(override);
    result = assignAt(result, path, leaf, override);
    const key = path.join('.');
    for (const known of origins.keys()) if (known.startsWith(`${key}.`)) origins.delete(known);
    origins.set(key, `command line (${override})`);
  }
  return result;
}

/**
 * Splits `a.b=c` into a path and a YAML value.
 * @throws ConfigError when there is no `=`, no key, or the value is not YAML
 */
export function parseOverride(text: string): { path: string[]; value: Json } {
  const where = `command line (${text})`;
  const split = text.indexOf('=');
  const path = text.slice(0, Math.max(split, 0)).trim().split('.');
  if (split < 1 || path.some(part => part === '')) {
    throw new ConfigError([
      {
        key: '',
        where,
        message: 'an override is written key=value, with dots between keys, e.g. training.steps=20',
      },
    ]);
  }
  try {
    const counter = new LineCounter();
    const document = parseYamlNodes(text.slice(split + 1), counter);
    const [first] = document.errors;
    if (first) throw first;
    const fault = collectLines(document.contents, '', counter, new Map());
    if (fault) throw new Error(fault);
    const value = attempted(() => plainValue(document));
    if (value === undefined) throw new Error(ALIASES);
    return { path, value };
  } catch (error) {
    const message = `the value is not YAML: ${(error as Error).message.split('\n')[0]}`;
    throw new ConfigError([{ key: path.join('.'), where, message }]);
  }
}

interface Layer {
  readonly file: string;
  readonly value: JsonObject;
  /** Dotted key → line, 1-based. */
  readonly lines: ReadonlyMap<string, number>;
}

/** Overrides of the key that names parts, and all other overrides. */
function splitOverrides(
  overrides: readonly string[],
  parts: NamedParts | undefined,
): readonly [naming: string[], others: string[]] {
  const names = (override: string) => {
    const { path } = parseOverride(override);
    return path.length === 1 && path[0] === parts?.key;
  };
  return [overrides.filter(names), overrides.filter(override => !names(override))];
}

/** The names of parts as a list, from either accepted form. */
function withNames(value: Json, key: string): Json {
  if (!isObject(value) || typeof value[key] !== 'string') return value;
  return { ...value, [key]: [value[key]] };
}

/** The layers of named parts. @throws ConfigError listing the valid names */
function partLayers(
  names: Json,
  parts: NamedParts,
  where: string,
  trail: readonly string[],
  library?: ConfigLibrary,
): Layer[] {
  const list = typeof names === 'string' ? [names] : names;
  const known = () => configNames(parts.folder);
  const fail = (message: string): never => {
    throw new ConfigError([{ key: parts.key, where, message }]);
  };
  if (!Array.isArray(list)) return fail(`names a file or a list of files: ${known().join(', ')}`);
  return list.flatMap(name => {
    if (typeof name !== 'string' || !known().includes(name)) {
      fail(
        `there is no ${JSON.stringify(name)}${suggestion(String(name), known())}; valid: ${known().join(', ')}`,
      );
    }
    return readLayers(join(parts.folder, `${name}.yaml`), trail, { parts, library });
  });
}

const configNames = (folder: string): string[] =>
  readdirSync(folder)
    .filter(name => extname(name) === '.yaml')
    .map(name => basename(name, '.yaml'));

/** A suggestion for a path that does not exist. */
function hintFor(file: string): string {
  const name = basename(file, '.yaml');
  if (name.includes('=')) return '; settings come after the config file';
  return existsSync(dirname(file)) ? suggestion(name, configNames(dirname(file))) : '';
}

/**
 * Resolves a path relative to a folder, or a library name.
 * @throws ConfigError listing the valid names
 */
function configFile(path: string, folder: string, library: ConfigLibrary | undefined, where: string): string {
  if (!library || !path.startsWith(library.prefix)) return resolve(folder, path);
  const known = configNames(library.folder);
  const name = path.slice(library.prefix.length);
  if (!known.includes(name)) {
    const message = `there is no config ${path}${suggestion(name, known)}; valid: ${known.join(', ')}`;
    throw new ConfigError([{ key: '', where, message }]);
  }
  return join(library.folder, `${name}.yaml`);
}

/** The layers of a file, starting with the files it extends. */
function readLayers(
  file: string,
  trail: readonly string[],
  options: Pick<LoadOptions<TSchema>, 'parts' | 'library' | 'paths'>,
): Layer[] {
  const { parts, library, paths = [] } = options;
  const fail = (message: string): never => {
    throw new ConfigError([{ key: '', where: shown(file), message }]);
  };
  if (trail.length > DEEPEST_EXTENDS) fail(`extends files more than ${DEEPEST_EXTENDS} levels deep`);
  if (trail.includes(file)) fail(`extends itself through ${[...trail, file].map(shown).join(' → ')}`);
  const stats = attempted(() => statSync(file));
  if (stats && stats.size > MAX_BYTES)
    fail(`has ${stats.size} bytes, and a config file at most ${MAX_BYTES}`);
  // One that is given may be a pipe; one that a file of somebody else names may be a device without an end.
  if (stats?.isFile() === false && trail.length > 0)
    fail(`is not a regular file, extended by ${shown(trail.at(-1)!)}`);
  let text = '';
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    const by = trail.length > 0 ? `, extended by ${shown(trail.at(-1)!)}` : '';
    fail(
      (error as NodeJS.ErrnoException).code === 'ENOENT'
        ? `no such config file${by}${hintFor(file)}`
        : `cannot be read${by}: ${(error as Error).message}`,
    );
  }
  const counter = new LineCounter();
  const document = parseYamlNodes(text, counter);
  const [first] = document.errors;
  if (first) fail(`not YAML: ${first.message.split('\n')[0]}`);
  const content = attempted(() => plainValue(document) ?? {}) ?? fail(ALIASES);
  if (!isObject(content)) {
    throw new ConfigError([
      { key: '', where: shown(file), message: 'a config file holds a map of keys at its top level' },
    ]);
  }
  const { [EXTENDS]: parents = [], ...value } = content;
  const names = typeof parents === 'string' ? [parents] : parents;
  if (!Array.isArray(names) || names.some(name => typeof name !== 'string')) {
    fail('`extends` names a file or a list of files, relative to this one');
  }
  const lines = new Map<string, number>();
  const fault = collectLines(document.contents, '', counter, lines);
  if (fault) fail(fault);
  const below: Layer[] = [];
  for (const name of names as string[]) {
    below.push(
      ...readLayers(configFile(name, dirname(file), library, shown(file)), [...trail, file], options),
    );
    if (below.length > MAX_FILES) fail(`extends more than ${MAX_FILES} files, those of its files counted`);
  }
  const named =
    parts && parts.key in value
      ? partLayers(
          value[parts.key],
          parts,
          `${shown(file)}:${lines.get(parts.key)}`,
          [...trail, file],
          library,
        )
      : [];
  const own = paths.reduce((all, key) => withOwnPath(all, key.split('.'), dirname(file)), value as Json);
  return [...below, ...named, { file, value: own as JsonObject, lines }];
}

/** Makes a `./…` or `../…` under a key absolute if it exists in the folder of its config file. */
function withOwnPath(value: Json, [key, ...rest]: readonly string[], folder: string): Json {
  if (key === undefined) {
    if (typeof value !== 'string' || !/^\.\.?[\\/]/.test(value)) return value;
    const path = resolve(folder, value);
    return existsSync(path) ? path : value;
  }
  return isObject(value) && key in value ? { ...value, [key]: withOwnPath(value[key], rest, folder) } : value;
}

const ALIASES = 'its aliases (`*name`) repeat too much, or hold themselves: write the values out';

/** @throws Error where aliases grow without end, or lead back to where they are */
function plainValue(document: Document): Json {
  const value = document.toJS() as Json;
  JSON.stringify(value);
  return value;
}

/** Adds the line of each key. @returns the fault of a key that a map has twice, or of an integer that would lose digits */
function collectLines(
  node: unknown,
  key: string,
  counter: LineCounter,
  lines: Map<string, number>,
): string | undefined {
  if (isScalar(node) && Number.isInteger(node.value) && !Number.isSafeInteger(node.value)) {
    const { source } = node;
    if (/^[-+]?\d+$/.test(source ?? ''))
      return `${key && `\`${key.slice(0, -1)}\`: `}${source} would lose digits: integers go to ${Number.MAX_SAFE_INTEGER}`;
  }
  if (!isMap(node) && !isSeq(node)) return undefined;
  const own = new Map<string, number | undefined>();
  for (const [index, item] of node.items.entries()) {
    const name = isPair(item) ? `${isScalar(item.key) ? item.key.value : item.key}` : `${index}`;
    const child = `${key}${name}`;
    const place = (isPair(item) ? item.key : item) as { range?: readonly number[] } | null;
    const line = place?.range && counter.linePos(place.range[0]).line;
    if (own.has(name)) return `\`${child}\` is there twice, in lines ${own.get(name)} and ${line}: keep one`;
    own.set(name, line);
    if (line !== undefined) lines.set(child, line);
    const fault = collectLines(isPair(item) ? item.value : item, `${child}.`, counter, lines);
    if (fault) return fault;
  }
  return undefined;
}

function assignAt(value: Json, path: readonly string[], leaf: Json, override: string): Json {
  if (path.length === 0) {
    // Merging an empty map would change nothing, so it clears the existing one.
    const merges = isObject(value) && isObject(leaf) && Object.keys(leaf).length > 0;
    return merges ? mergeConfig(value, leaf) : leaf;
  }
  const [head, ...rest] = path;
  if (Array.isArray(value)) {
    const index = Number(head);
    if (!Number.isInteger(index) || index < 0 || index > value.length) {
      throw new ConfigError([
        {
          key: path.join('.'),
          where: `command line (${override})`,
          message: `a list is indexed with 0 to ${value.length}, got ${JSON.stringify(head)}`,
        },
      ]);
    }
    const copy = value.slice() as Json[];
    copy[index] = assignAt(copy[index] ?? {}, rest, leaf, override);
    return copy;
  }
  const map = isObject(value) ? value : {};
  return { ...map, [head]: assignAt(map[head] ?? {}, rest, leaf, override) };
}

function originOf(key: string, origins: ReadonlyMap<string, string>): string | undefined {
  const parts = key.split('.');
  for (let length = parts.length; length > 0; length--) {
    const origin = origins.get(parts.slice(0, length).join('.'));
    if (origin !== undefined) return origin;
  }
  for (const [known, origin] of origins) if (known.startsWith(`${key}.`)) return origin;
  return undefined;
}

function shown(file: string): string {
  const short = relative(process.cwd(), file);
  return short.startsWith('..') ? file : short;
}

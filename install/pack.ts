/**
 * Packs parts of `ragen` alone, so that nobody installs what the others need: `npm run pack:env-server`, `pack:client` or
 * `pack:ragen [-- FOLDER]` writes `ragen-PART-VERSION.tgz` into the folder. `node install/pack.ts NAME… FOLDER` packs
 * several.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { cutDown, PACKAGES } from '../docker/packages.ts';

const ROOT = join(import.meta.dirname, '..');
const LAUNCHER = ['launch.js', 'compile-cache.js'];

type Manifest = Parameters<typeof cutDown>[0] & { readonly [key: string]: unknown };

interface Part {
  readonly description: string;
  /** Files and folders below dist/. */
  readonly parts: readonly string[];
  /** Files of them that stay away. */
  readonly without?: RegExp;
  /** The program, in bin/. */
  readonly program?: string;
  /** Entries: what a program imports → its path below dist/, without ending. */
  readonly entries: { readonly [name: string]: string };
  readonly dependencies: readonly string[];
  /** Dependencies that are left to those who want them. */
  readonly optional?: RegExp;
  readonly node: string;
}

/** Packages by name. */
export const PARTS: { readonly [name: string]: Part } = {
  'ragen-env-server': {
    description: 'Serves environments for reinforcement learning of language-model agents.',
    parts: ['env-server', 'shared', 'site', 'package.json'],
    // The server hands out pages from their sources, and no program takes types from them.
    without: /\/dist\/site\/(?:(?:boards|components|runs)\/.*\.js|.*\.d\.ts)$/,
    program: 'ragen-env-server.js',
    entries: { '.': 'env-server/index' },
    dependencies: PACKAGES['env-server'],
    // Tracing, which few servers do, is a quarter of all that the server depends on.
    optional: /^@opentelemetry\//,
    node: '>=24',
  },
  'ragen-client': {
    description: 'Plays the environments of a ragen server, in Node and in browsers.',
    parts: ['trainer/client', 'shared', 'openapi', 'package.json'],
    entries: { '.': 'trainer/client/index' },
    dependencies: ['pino', 'undici', 'ws'],
    node: '>=22.12',
  },
  ragen: {
    description: 'Trains language-model agents by reinforcement learning.',
    parts: ['trainer', 'shared', 'site', 'configs', 'openapi', 'package.json'],
    program: 'ragen.js',
    entries: { './trainer': 'trainer/index', './client': 'trainer/client/index' },
    dependencies: PACKAGES.trainer,
    node: '>=24',
  },
};

/** The manifest of a package. */
export function manifestOf(name: string, manifest: Manifest): object {
  const { description, entries, program, optional, node, dependencies: needs } = PARTS[name];
  // Pages in dist/ have no types left to remove.
  const used = needs.filter(need => need !== '@swc/wasm-typescript');
  const { dependencies, overrides } = cutDown(manifest, used) as Manifest;
  const { true: left = [], false: needed = [] } = Object.groupBy(
    Object.entries(dependencies),
    ([dependency]) => `${optional?.test(dependency) ?? false}` as const,
  );
  const paths = Object.entries(entries).map(([entry, path]) => [
    entry,
    { types: `./dist/${path}.d.ts`, default: `./dist/${path}.js` },
  ]);
  const { version, license, type, browser } = manifest;
  return {
    name,
    version,
    description,
    license,
    type,
    ...(program && { bin: { [program.slice(0, -3)]: `bin/${program}` } }),
    exports: { ...Object.fromEntries(paths), './package.json': './package.json' },
    ...(Object.values(entries).includes('trainer/client/index') && { browser }),
    files: ['bin', 'dist'],
    engines: { node },
    dependencies: Object.fromEntries(needed),
    ...(left.length > 0 && {
      peerDependencies: Object.fromEntries(left),
      peerDependenciesMeta: Object.fromEntries(left.map(([one]) => [one, { optional: true }])),
    }),
    ...(overrides && { overrides }),
  };
}

/** File of a packed part: not `ragen-VERSION.tgz`, which `npm pack` writes with all parts. */
export const tarballOf = (name: string, version: string): string =>
  `${name === 'ragen' ? 'ragen-trainer' : name}-${version}.tgz`;

function pack(name: string, destination: string): void {
  const { parts, without, program } = PARTS[name];
  const folder = mkdtempSync(join(tmpdir(), `${name}-`));
  try {
    for (const part of parts) {
      const options = { recursive: true, filter: (path: string) => !without?.test(path) };
      cpSync(join(ROOT, 'dist', part), join(folder, 'dist', part), options);
    }
    for (const file of program ? [program, ...LAUNCHER] : [])
      cpSync(join(ROOT, 'bin', file), join(folder, 'bin', file));
    cpSync(join(ROOT, 'LICENSE'), join(folder, 'LICENSE'));
    const manifest: Manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifestOf(name, manifest), null, 2)}\n`);
    const packed = execFileSync('npm', ['pack', '--silent'], { cwd: folder, encoding: 'utf8' }).trim();
    const tarball = tarballOf(name, String(manifest.version));
    cpSync(join(folder, packed), join(destination, tarball));
    console.log(tarball);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

if (import.meta.main) {
  const names = process.argv.slice(2).filter(argument => Object.hasOwn(PARTS, argument));
  const [folder = '.', ...others] = process.argv.slice(2).filter(argument => !names.includes(argument));
  const destination = resolve(folder);
  if (names.length === 0 || others.length > 0 || !existsSync(destination)) {
    console.error(`usage: node install/pack.ts NAME… [FOLDER]; names: ${Object.keys(PARTS).join(', ')}`);
    process.exit(1);
  }
  execFileSync(process.execPath, [join(import.meta.dirname, 'build-package.ts')], { stdio: 'inherit' });
  for (const name of names) pack(name, destination);
}

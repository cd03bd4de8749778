/**
 * Packs the environment server alone, without trainer, ONNX Runtime, WebGPU and the Node.js that `ragen` brings along:
 * `npm run pack:env-server [-- FOLDER]` writes `ragen-env-server-VERSION.tgz` into the folder.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { cutDown, PACKAGES } from '../docker/packages.ts';

const ROOT = join(import.meta.dirname, '..');
/** The parts of the server, below dist/. */
const PARTS = ['env-server', 'shared', 'site', 'package.json'];
/** The server hands out pages from their sources, and no program takes types from them. */
const COMPILED_PAGES = /\/dist\/site\/(?:(?:boards|components|runs)\/.*\.js|.*\.d\.ts)$/;
const PROGRAMS = ['ragen-env-server.js', 'launch.js', 'compile-cache.js'];
/** Packages of tracing, which few servers do: a quarter of all that the server depends on. */
const OPTIONAL = /^@opentelemetry\//;

/** The manifest of the package: tracing is left to those who want it. */
export function manifestOf(manifest: Parameters<typeof cutDown>[0]) {
  const { dependencies, overrides } = cutDown(manifest, PACKAGES['env-server']) as {
    readonly dependencies: { readonly [name: string]: string };
    readonly overrides?: object;
  };
  const { true: tracing = [], false: needed = [] } = Object.groupBy(
    Object.entries(dependencies),
    ([name]) => `${OPTIONAL.test(name)}` as const,
  );
  const { version, license, type, files } = manifest as unknown as { readonly [key: string]: unknown };
  return {
    name: 'ragen-env-server',
    version,
    description: 'Serves environments for reinforcement learning of language-model agents.',
    license,
    type,
    bin: { 'ragen-env-server': 'bin/ragen-env-server.js' },
    exports: {
      '.': { types: './dist/env-server/index.d.ts', default: './dist/env-server/index.js' },
      './package.json': './package.json',
    },
    files,
    engines: { node: '>=24' },
    dependencies: Object.fromEntries(needed),
    peerDependencies: Object.fromEntries(tracing),
    peerDependenciesMeta: Object.fromEntries(tracing.map(([name]) => [name, { optional: true }])),
    ...(overrides && { overrides }),
  };
}

if (import.meta.main) {
  const destination = resolve(process.argv[2] ?? '.');
  execFileSync(process.execPath, [join(import.meta.dirname, 'build-package.ts')], { stdio: 'inherit' });
  const folder = mkdtempSync(join(tmpdir(), 'ragen-env-server-'));
  try {
    for (const part of PARTS) {
      const options = { recursive: true, filter: (path: string) => !COMPILED_PAGES.test(path) };
      cpSync(join(ROOT, 'dist', part), join(folder, 'dist', part), options);
    }
    for (const program of PROGRAMS) cpSync(join(ROOT, 'bin', program), join(folder, 'bin', program));
    cpSync(join(ROOT, 'LICENSE'), join(folder, 'LICENSE'));
    const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifestOf(manifest), null, 2)}\n`);
    execFileSync('npm', ['pack', '--silent', '--pack-destination', destination], {
      cwd: folder,
      stdio: 'inherit',
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

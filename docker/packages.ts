/**
 * Cuts a package.json down to what one of the two programs needs, so that an image holds nothing else:
 * `node docker/packages.ts env-server|trainer [package.json]`. The versions stay those of the lock file.
 */
import { readFileSync, writeFileSync } from 'node:fs';

/** Packages that each program loads. */
export const PACKAGES = {
  'env-server': [
    '@fastify/accept-negotiator',
    '@fastify/cors',
    '@fastify/etag',
    '@fastify/helmet',
    '@fastify/websocket',
    '@jitl/quickjs-ng-wasmfile-release-sync',
    '@modelcontextprotocol/server',
    '@msgpack/msgpack',
    '@opentelemetry/api',
    '@opentelemetry/core',
    '@opentelemetry/exporter-trace-otlp-proto',
    '@opentelemetry/resources',
    '@opentelemetry/sdk-trace',
    '@swc/wasm-typescript',
    'commander',
    'cookie',
    'fastify',
    'htm',
    'hyparquet',
    'hyparquet-compressors',
    'iovalkey',
    'pino',
    'pngjs',
    'preact',
    'prom-client',
    'quickjs-emscripten-core',
    'typebox',
    'undici',
    'uplot',
    'ws',
    'yaml',
    'zod',
  ],
  trainer: [
    '@fastify/accept-negotiator',
    '@fastify/helmet',
    '@fastify/websocket',
    '@huggingface/hub',
    '@huggingface/jinja',
    '@huggingface/tokenizers',
    '@swc/wasm-typescript',
    'commander',
    'fastify',
    'gpu.js',
    'htm',
    'hyparquet',
    'hyparquet-compressors',
    'onnxruntime-node',
    'pino',
    'preact',
    'prom-client',
    'proper-lockfile',
    'protobufjs',
    'typebox',
    'undici',
    'uplot',
    'webgpu',
    'ws',
    'yaml',
  ],
} as const satisfies { readonly [program: string]: readonly string[] };

interface Manifest {
  readonly dependencies: { readonly [name: string]: string };
  readonly devDependencies?: unknown;
  readonly overrides?: { readonly [name: string]: unknown };
}

/**
 * A manifest with only some of its dependencies.
 * @throws Error for one that it does not have
 */
export function cutDown<M extends Manifest>(manifest: M, packages: readonly string[]): object {
  const { devDependencies: _tools, overrides = {}, ...rest } = manifest;
  const dependencies = Object.fromEntries(
    packages.map(name => {
      const version = manifest.dependencies[name];
      if (version === undefined) throw new Error(`package.json has no dependency ${name}`);
      return [name, version];
    }),
  );
  const kept = Object.entries(overrides).filter(([name]) => packages.includes(name));
  return { ...rest, dependencies, ...(kept.length > 0 && { overrides: Object.fromEntries(kept) }) };
}

if (import.meta.main) {
  const [program = '', file = 'package.json'] = process.argv.slice(2);
  if (!(program in PACKAGES)) {
    throw new Error(
      `which program? one of ${Object.keys(PACKAGES).join(', ')}, not ${JSON.stringify(program)}`,
    );
  }
  const manifest: Manifest = JSON.parse(readFileSync(file, 'utf8'));
  writeFileSync(file, JSON.stringify(cutDown(manifest, PACKAGES[program as keyof typeof PACKAGES]), null, 2));
}

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { minVersion, satisfies } from 'semver';
import t from 'tap';

interface LockFile {
  readonly packages: {
    readonly [path: string]: { readonly version?: string; readonly engines?: { readonly node?: string } };
  };
}

const ROOT = join(import.meta.dirname, '..');
const readJson = <T>(name: string): T => JSON.parse(readFileSync(join(ROOT, name), 'utf8')) as T;
const manifest = readJson<{ readonly engines: { readonly node: string } }>('package.json');

t.test('every package admits every Node that engines admits, so that npm prints no EBADENGINE', async t => {
  const lowest = manifest.engines.node.split('||').map(range => minVersion(range)!.version);
  t.same(lowest, ['20.19.0', '22.12.0'], 'the lowest versions of two lines');
  const refusals = Object.entries(readJson<LockFile>('package-lock.json').packages).flatMap(
    ([path, { version, engines }]) =>
      [...lowest, '20.20.2', '22.22.0', '24.0.0', process.versions.node]
        .filter(node => engines?.node !== undefined && !satisfies(node, engines.node))
        .map(node => `${path}@${version} refuses Node ${node}`),
  );
  t.same(refusals, []);
});

t.test('the install script of onnxruntime-node downloads no CUDA libraries', async t => {
  const fromRoot = createRequire(join(ROOT, 'package.json'));
  const script = join(dirname(fromRoot.resolve('onnxruntime-node/package.json')), 'script/install.js');
  t.equal(
    createRequire(script).resolve('global-agent'),
    join(ROOT, 'install/global-agent/index.js'),
    'the script loads the stand-in',
  );
  const { ONNXRUNTIME_NODE_INSTALL: _, ...environment } = process.env;
  const flagAfter = (more: NodeJS.ProcessEnv): string =>
    execFileSync(
      process.execPath,
      ['-p', "require('global-agent').bootstrap(); process.env.ONNXRUNTIME_NODE_INSTALL"],
      { cwd: ROOT, env: { ...environment, ...more }, encoding: 'utf8' },
    ).trim();
  t.equal(flagAfter({}), 'skip');
  t.equal(flagAfter({ ONNXRUNTIME_NODE_INSTALL: 'cuda12' }), 'cuda12', 'who asks for CUDA gets it');
});

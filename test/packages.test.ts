import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { listening } from './process.test-data.ts';

const ROOT = join(import.meta.dirname, '..');
const MAX_BYTES = 60e6;

interface Locked {
  readonly dependencies?: { readonly [name: string]: string };
}

const LOCK: { readonly packages: { readonly [path: string]: Locked } } = JSON.parse(
  readFileSync(join(ROOT, 'package-lock.json'), 'utf8'),
);

/** Folders of packages and of all that they need, where npm finds them from the folder of another package. */
function closure(names: readonly string[], from: string, found = new Set<string>()): Set<string> {
  for (const name of names) {
    let above = from;
    while (!(join(above, 'node_modules', name) in LOCK.packages) && above !== '') {
      above = above.includes('node_modules')
        ? above.replace(/\/?node_modules\/(?!.*node_modules\/).*$/, '')
        : '';
    }
    const path = join(above, 'node_modules', name);
    if (found.has(path)) continue;
    found.add(path);
    closure(Object.keys(LOCK.packages[path].dependencies ?? {}), path, found);
  }
  return found;
}

/** Bytes of a folder's files, without packages in it. */
function bytesOf(folder: string): number {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile() && !entry.parentPath.slice(folder.length).includes('node_modules'))
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
}

t.setTimeout(600_000);

t.test('the package of the server alone is small, and serves', async t => {
  // Outside the repository, where nothing is found that the package does not depend on.
  const folder = mkdtempSync(join(tmpdir(), 'ragen-env-server-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  execFileSync(process.execPath, [join(ROOT, 'install/pack-env-server.ts'), folder]);
  const [tarball] = readdirSync(folder);
  t.match(tarball, /^ragen-env-server-\d.*\.tgz$/);
  const target = join(folder, 'node_modules/ragen-env-server');
  mkdirSync(target, { recursive: true });
  execFileSync('tar', ['xzf', join(folder, tarball), '-C', target, '--strip-components=1']);
  const { dependencies } = JSON.parse(readFileSync(join(target, 'package.json'), 'utf8'));
  const names = Object.keys(dependencies);
  t.notOk(names.some(name => /^(node|onnxruntime-node|webgpu|gpu\.js|@opentelemetry\/.*)$/.test(name)));

  const packages = [...closure(names, '')];
  const bytes = [target, ...packages.map(path => join(ROOT, path))].reduce(
    (sum, path) => sum + bytesOf(path),
    0,
  );
  t.comment(`${packages.length + 1} packages, ${(bytes / 1e6).toFixed(1)} MB`);
  t.ok(bytes <= MAX_BYTES, `${bytes} bytes`);

  for (const name of names) {
    if (name.includes('/')) mkdirSync(join(folder, 'node_modules', name.split('/')[0]), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', name), join(folder, 'node_modules', name));
  }
  const program = join(target, 'bin/ragen-env-server.js');
  const child = spawn(process.execPath, [program, '--port', '0'], { cwd: folder });
  t.teardown(() => child.kill('SIGKILL'));
  const { origin } = await listening(child);
  const post = async (path: string, body: object) => {
    const headers = { 'content-type': 'application/json' };
    const reply = await fetch(origin + path, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: reply.status, body: (await reply.json()) as { [name: string]: unknown } };
  };
  const opened = await post('/v1/sessions', { env_id: 'FrozenLake-v0', seed: 7 });
  t.equal(opened.status, 201);
  const step = await post(`/v1/sessions/${opened.body.session_id}/step`, { action: 'Up' });
  t.match(step, { status: 200, body: { reward: Number } });
  for (const path of ['/', '/assets/site/playground/main.ts', '/docs/', '/metrics', '/openapi.json']) {
    t.equal((await fetch(origin + path)).status, 200, path);
  }

  const traced = spawnSync(process.execPath, [program, '--port', '0'], {
    encoding: 'utf8',
    cwd: folder,
    env: { ...process.env, OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' },
  });
  t.equal(traced.status, 1);
  t.match(traced.stderr, /^ragen-env-server: traces, .* \(npm install @opentelemetry\/api /);
});

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { PARTS, tarballOf } from '../install/pack.ts';
import { VERSION } from '../shared/program.ts';
import { listening } from './process.test-data.ts';

const ROOT = join(import.meta.dirname, '..');
const MAX_SERVER_BYTES = 60e6;
const MAX_CLIENT_BYTES = 5e6;
/** The compiler of TypeScript 7; `package.test.ts` reads the same declarations with that of TypeScript 5. */
const TSC = join(ROOT, 'node_modules/typescript-native/bin/tsc');
const TSC_OPTIONS = '--noEmit --strict --skipLibCheck --module nodenext --target es2024 --types node'.split(
  ' ',
);

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

const PACKED = mkdtempSync(join(tmpdir(), 'ragen-packages-'));
t.teardown(() => rmSync(PACKED, { recursive: true }));
execFileSync(process.execPath, [join(ROOT, 'install/pack.ts'), ...Object.keys(PARTS), PACKED]);

/** An empty folder with one package and all that it depends on, outside the repository. */
function installed(
  t: Test,
  name: string,
): { folder: string; target: string; bytes: number; names: string[] } {
  const folder = mkdtempSync(join(tmpdir(), `${name}-`));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const modules = join(folder, 'node_modules');
  const target = join(modules, name);
  mkdirSync(target, { recursive: true });
  execFileSync('tar', ['xzf', join(PACKED, tarballOf(name, VERSION)), '-C', target, '--strip-components=1']);
  const { dependencies } = JSON.parse(readFileSync(join(target, 'package.json'), 'utf8'));
  const names = Object.keys(dependencies);
  for (const dependency of names) {
    if (dependency.includes('/')) mkdirSync(join(modules, dependency.split('/')[0]), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', dependency), join(modules, dependency));
  }
  const packages = [...closure(names, '')];
  const folders = [target, ...packages.map(path => join(ROOT, path))];
  const bytes = folders.reduce((sum, path) => sum + bytesOf(path), 0);
  t.comment(`${name}: ${folders.length} packages, ${(bytes / 1e6).toFixed(1)} MB`);
  const tests = readdirSync(join(target, 'dist'), { recursive: true, encoding: 'utf8' });
  t.same(
    tests.filter(file => /\.test(-data)?\./.test(file)),
    [],
  );
  return { folder, target, bytes, names };
}

t.test('no part has the file name of the whole package', async t => {
  const whole = `ragen-${VERSION}.tgz`;
  t.notOk(readdirSync(PACKED).includes(whole), `npm pack writes ${whole}`);
  t.equal(readdirSync(PACKED).length, Object.keys(PARTS).length, 'each has its own');
});

async function served(t: Test, program: string, cwd: string): Promise<string> {
  const child = spawn(process.execPath, [program, '--port', '0'], { cwd });
  t.teardown(() => child.kill('SIGKILL'));
  return (await listening(child)).origin;
}

t.test('the package of the server alone is small, and serves', async t => {
  const { folder, target, bytes, names } = installed(t, 'ragen-env-server');
  t.notOk(names.some(name => /^(node|onnxruntime-node|webgpu|gpu\.js|@opentelemetry\/.*)$/.test(name)));
  t.ok(bytes <= MAX_SERVER_BYTES, `${bytes} bytes`);
  const program = join(target, 'bin/ragen-env-server.js');
  const origin = await served(t, program, folder);
  const post = async (path: string, body: object) => {
    const headers = { 'content-type': 'application/json' };
    const reply = await fetch(origin + path, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: reply.status, body: (await reply.json()) as { [name: string]: unknown } };
  };
  const opened = await post('/v1/sessions', { env_id: 'FrozenLake-v0', seed: 7 });
  t.equal(opened.status, 201);
  const step = await post(`/v1/sessions/${opened.body.session_id}/step`, { action: 'Up' });
  t.match(step, { status: 200, body: { reward: Number } });
  for (const path of ['/', '/docs/', '/metrics', '/openapi.json']) {
    t.equal((await fetch(origin + path)).status, 200, path);
  }
  const bundle = await fetch(`${origin}/assets/bundles/site/playground/main.ts`);
  t.equal(bundle.status, 200, 'what the page of the playground begins with');
  // Each module of it.
  const loaded = new Set(['/assets/site/playground/main.ts']);
  for (const path of loaded) {
    const reply = await fetch(origin + path);
    t.equal(reply.status, 200, path);
    for (const [, name] of (await reply.text()).matchAll(/(?:from|import) '(\.[^']+)'/g))
      loaded.add(new URL(name, origin + path).pathname);
  }
  t.ok(loaded.size > 20, `${loaded.size} modules`);

  const traced = spawnSync(process.execPath, [program, '--port', '0'], {
    encoding: 'utf8',
    cwd: folder,
    env: { ...process.env, OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' },
  });
  t.equal(traced.status, 1);
  t.match(traced.stderr, /^ragen-env-server: traces, .* \(npm install @opentelemetry\/api /);
});

t.test('the client alone has three dependencies, and runs the programs of its page', async t => {
  const { folder, bytes, names } = installed(t, 'ragen-client');
  t.same(names, ['pino', 'undici', 'ws']);
  t.ok(bytes <= MAX_CLIENT_BYTES, `${bytes} bytes`);
  const origin = await served(t, join(ROOT, 'env-server/main.ts'), folder);
  const page = readFileSync(join(ROOT, 'docs/reference/client.md'), 'utf8');
  const programs = [...page.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(match => match[1]);
  t.equal(programs.length, 2);
  symlinkSync(join(ROOT, 'node_modules/@types'), join(folder, 'node_modules/@types'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  for (const [i, program] of programs.entries()) {
    writeFileSync(join(folder, `program-${i}.ts`), program.replace("'ragen/client'", "'ragen-client'"));
    const printed = execFileSync(process.execPath, [`program-${i}.ts`, origin], {
      cwd: folder,
      encoding: 'utf8',
    });
    t.match(printed, i === 0 ? /^mean return [\d.]+\n$/ : / -0\.1\n$/);
  }
  const files = programs.map((_, i) => `program-${i}.ts`);
  execFileSync(process.execPath, [TSC, ...TSC_OPTIONS, ...files], { cwd: folder, stdio: 'inherit' });
});

t.test('the trainer alone trains against a server elsewhere', async t => {
  const { folder, target, names } = installed(t, 'ragen');
  t.notOk(names.some(name => /^(node|iovalkey|quickjs-emscripten-core)$/.test(name)));
  t.notOk(existsSync(join(target, 'dist/env-server')));
  const ragen = (...args: string[]) =>
    execFileSync(process.execPath, [join(target, 'bin/ragen.js'), ...args], {
      cwd: folder,
      encoding: 'utf8',
    });
  t.equal(ragen('--version').trim(), VERSION);
  const origin = await served(t, join(ROOT, 'env-server/main.ts'), folder);
  const small = [
    'warm_start.episodes=64',
    'warm_start.epochs=1',
    'validation.episodes=8',
    'training.steps=1',
  ];
  const run = ragen('train', 'ragen:quickstart', `servers=[{url: "${origin}"}]`, ...small);
  t.match(run, /finished /);
  writeFileSync(
    join(folder, 'program.ts'),
    `import { loadRunSettings } from 'ragen/trainer';
import { EnvServer } from 'ragen/client';
const server = new EnvServer({ url: process.argv[2] });
await server.call('create', { env_id: 'FrozenLake-v0' });
await server.close();
console.log(loadRunSettings('ragen:quickstart').servers.length satisfies number);
`,
  );
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  symlinkSync(join(ROOT, 'node_modules/@types'), join(folder, 'node_modules/@types'));
  const printed = execFileSync(process.execPath, ['program.ts', origin], { cwd: folder, encoding: 'utf8' });
  t.equal(printed, '1\n');
  execFileSync(process.execPath, [TSC, ...TSC_OPTIONS, 'program.ts'], { cwd: folder, stdio: 'inherit' });
});

t.test('a name that is not a package is refused with those that are', async t => {
  const { status, stderr } = spawnSync(process.execPath, [join(ROOT, 'install/pack.ts'), 'ragen-server'], {
    encoding: 'utf8',
  });
  t.equal(status, 1);
  t.match(stderr, /names: ragen-env-server, ragen-client, ragen/);
});

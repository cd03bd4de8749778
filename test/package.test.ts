import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { VERSION } from '../shared/program.ts';
import { freePort } from './free-port.test-data.ts';
import { listening } from './process.test-data.ts';
import { readPage } from './walkthrough.test-data.ts';

const ROOT = join(import.meta.dirname, '..');

const PROGRAM = `
import { createApp, createRegistry, type Environment, Random } from 'ragen/env-server';
import { EnvServer } from 'ragen/client';
import { ConfigError, loadRunSettings } from 'ragen/trainer';

const registry = createRegistry();
const reset: Environment['reset'] | undefined = registry.find('Bandit-v0')?.reset;
const { server: app } = await createApp({}, { registry });
const url: string = await app.listen({ host: '127.0.0.1', port: 0 });
const server = new EnvServer({ url });
const { session_id } = await server.call('create', { env_id: 'FrozenLake-v0', seed: 7 });
const { reward } = await server.call('step', { session_id, action: 'Up' });
await server.close();
await app.close();
let refusal = '';
try { loadRunSettings(process.argv[2], ['seeed=1']); } catch (error) { refusal = (error as ConfigError).message; }
console.log(JSON.stringify({ reward: reward satisfies number, reset: typeof reset, refusal, int: Random.fromSeed(1).integer(1) }));
`;

/** An empty folder in which the packed tarball is installed, its dependencies linked from the repository's. */
function installed(folder: string): string {
  const packed: readonly { filename: string }[] = JSON.parse(
    execFileSync('npm', ['pack', '--json', '--silent', '--pack-destination', folder], {
      cwd: ROOT,
      encoding: 'utf8',
    }),
  );
  const modules = join(folder, 'node_modules');
  const target = join(modules, 'ragen');
  mkdirSync(target, { recursive: true });
  execFileSync('tar', ['xzf', join(folder, packed[0].filename), '-C', target, '--strip-components=1']);
  const { dependencies } = JSON.parse(readFileSync(join(target, 'package.json'), 'utf8'));
  for (const name of [...Object.keys(dependencies), '@types/node']) {
    if (name.includes('/')) mkdirSync(join(modules, name.split('/')[0]), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', name), join(modules, name));
  }
  const programs = join(modules, '.bin');
  mkdirSync(programs);
  symlinkSync(process.execPath, join(programs, 'node'));
  for (const name of ['ragen', 'ragen-env-server']) {
    const program = join(target, 'bin', `${name}.js`);
    chmodSync(program, 0o755);
    symlinkSync(program, join(programs, name));
  }
  return target;
}

const PAGE = 'docs/how-to/use-as-a-package.md';
/** Blocks that make a page's project, in order: named files, and commands. */
const PAGE_BLOCK = /^(?:`([\w.]+)`:\n\n)?```(ts|sh)\n([\s\S]*?)^```$/gm;
/** Lines of the page that build and install the package, which the test has done. */
const INSTALLING = /^(npm pack .*|ONNXRUNTIME_NODE_INSTALL=skip npm install .*\.tgz)$/gm;
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc');
const TSC_OPTIONS = '--noEmit --strict --skipLibCheck --module nodenext --target es2024 --types node'.split(
  ' ',
);

t.setTimeout(900_000);

t.test('the package works where only its tarball is installed', async t => {
  const folder = t.testdir({ 'package.json': '{"type":"module"}', 'program.ts': PROGRAM });
  const target = installed(folder);
  const run = (...args: string[]): string =>
    execFileSync(process.execPath, args, {
      cwd: folder,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'inherit'],
    });
  const bin = (name: string) => join(target, 'bin', `${name}.js`);

  await t.test('the tarball holds no tests, and entries as JavaScript with declarations', async t => {
    const files = readdirSync(join(target, 'dist'), { recursive: true, encoding: 'utf8' });
    t.same(
      files.filter(file => /\.test(-data)?\./.test(file)),
      [],
    );
    for (const entry of ['env-server/index', 'trainer/client/index', 'trainer/index']) {
      t.ok(files.includes(`${entry}.js`) && files.includes(`${entry}.d.ts`), entry);
    }
  });

  await t.test('both programs say version and help', async t => {
    t.equal(run(bin('ragen-env-server'), '--version').trim(), VERSION);
    t.equal(run(bin('ragen'), '--version').trim(), VERSION);
    t.match(run(bin('ragen'), '--help'), /ragen train ragen:quickstart/);
  });

  await t.test('the server serves sessions, scripts and pages', async t => {
    const child = spawn(process.execPath, [bin('ragen-env-server'), '--port', '0'], { cwd: folder });
    t.teardown(() => child.kill('SIGKILL'));
    const { origin } = await listening(child);
    const post = (path: string, body: object) =>
      fetch(`${origin}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
    t.equal((await post('/v1/sessions', { env_id: 'Sokoban-v0', seed: 1 })).status, 201);
    const page = await (await fetch(origin)).text();
    const scripts = [...page.matchAll(/src="([^"]+)"/g)].map(([, script]) => script);
    const sources = await Promise.all(scripts.map(script => fetch(new URL(script, origin))));
    for (const { headers } of sources) t.match(headers.get('content-type'), /javascript/);
    const texts = await Promise.all(sources.map(source => source.text()));
    t.match(texts.join('\n'), /\/v1\/envs/, 'the bundle of the playground is made from the installed files');
  });

  await t.test('a program on the three entries type-checks and runs', async t => {
    run(TSC, ...TSC_OPTIONS, 'program.ts');
    t.match(JSON.parse(run('program.ts', join(target, 'dist/configs/quickstart.yaml'))), {
      reward: Number,
      reset: 'function',
      refusal: /seeed/,
    });
  });

  await t.test('the lines of its page make a project that learns in an empty folder', async t => {
    const project = join(folder, 'project');
    mkdirSync(project);
    const port = String(await freePort());
    const page = readPage(PAGE)
      .replaceAll('8080', port)
      .replaceAll('ragen init', `ragen init --servers http://127.0.0.1:${port}`);
    const shell = (script: string) =>
      execFileSync('bash', ['-euc', script], {
        cwd: project,
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
      });
    const printed: string[] = [];
    for (const [, name, language, text] of page.matchAll(PAGE_BLOCK)) {
      if (language === 'ts') writeFileSync(join(project, name), text);
      else if (text.startsWith('npx node server.ts')) {
        const child = spawn(process.execPath, ['server.ts'], { cwd: project });
        t.teardown(() => child.kill('SIGKILL'));
        await Promise.race([once(child.stdout, 'data'), once(child, 'exit')]);
      } else printed.push(shell(text.replaceAll(INSTALLING, '')));
      if (text.includes(' npm install '))
        symlinkSync(join(folder, 'node_modules'), join(project, 'node_modules'));
    }
    t.match(JSON.parse(readFileSync(join(project, 'package.json'), 'utf8')), { type: 'module' });
    const all = printed.join('');
    t.match(all, /npx ragen train Coin-v0\.yaml/, 'the next command has the program that the reader has');
    const [, success] = /Coin: success .* → (\d+) %/.exec(all)!;
    t.ok(Number(success) >= 60, `success ${success} %`);
    t.match(all, /The coin is in your hand\. [01]\n/);
    t.match(all, /finished .*coin-001\n/);
    execFileSync(
      process.execPath,
      [
        TSC,
        ...TSC_OPTIONS,
        '--allowImportingTsExtensions',
        ...readdirSync(project).filter(file => file.endsWith('.ts')),
      ],
      { cwd: project, stdio: 'inherit' },
    );
  });
});

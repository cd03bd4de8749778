import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import t, { type Test } from 'tap';
import { SETTINGS, variableOf } from '../env-server/config/settings.ts';
import { hashToken } from '../env-server/transports/access/auth.ts';
import { ALLOCATOR } from '../shared/allocator.ts';
import { freePort } from '../test/free-port.test-data.ts';
import { RESUMABLE } from '../trainer/config/load.ts';
import {
  assemble,
  baseOf,
  copies,
  exists,
  IMAGES,
  isIgnored,
  lastStage,
  ROOT,
  said,
  stagesOf,
  variablesOf,
} from './images.test-data.ts';
import { reachable } from './imports.test-data.ts';
import { cutDown, PACKAGES } from './packages.ts';

const MANIFEST = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8'));

for (const image of IMAGES) {
  t.test(`${image}: in stages, from the Node.js of package.json, as a user without rights`, async t => {
    const stages = stagesOf(image);
    t.equal(stages.length, 2);
    for (const stage of stages) t.match(said(stage, 'FROM')[0], /^\$\{NODE_IMAGE\}/);
    const [tag, digest] = baseOf(image).split('@');
    t.equal(tag, `node:${MANIFEST.dependencies.node}-bookworm-slim`);
    t.match(digest, /^sha256:[0-9a-f]{64}$/, 'the base is pinned by digest');
    const last = lastStage(image);
    t.same(said(last, 'USER'), ['1000:1000']);
    t.equal(said(last, 'VOLUME').length, 1);
    t.equal(said(last, 'HEALTHCHECK').length, 1);
    t.same(said(last, 'STOPSIGNAL'), ['SIGTERM']);
    t.match(JSON.parse(said(last, 'ENTRYPOINT')[0]), ['tini', '--']);
    t.match(said(last, 'RUN')[0], /\/usr\/local\/bin\/npm/, 'without tools to install more');
  });

  t.test(`${image}: what is copied exists and reaches the image`, async t => {
    for (const stage of stagesOf(image)) {
      for (const { sources } of copies(stage)) {
        for (const source of sources) t.ok(exists(source) && !isIgnored(source), source);
      }
    }
  });

  t.test(`${image}: holds the packages that the program loads, and no others`, async t => {
    const { packages } = reachable(`${image}/main.ts`);
    t.same(
      [...PACKAGES[image]].sort(),
      [...packages].sort(),
      'after adding or dropping a package, list it in docker/packages.ts',
    );
    for (const name of packages) t.ok(MANIFEST.dependencies[name], `${name} is a dependency`);
  });

  t.test(`${image}: every file that the program loads is in it`, async t => {
    const copied = copies(lastStage(image)).flatMap(({ sources }) => sources);
    for (const file of reachable(`${image}/main.ts`).files) {
      const within = copied.some(source => file === source || file.startsWith(`${source}/`));
      if (!within || isIgnored(file)) t.fail(`${file} is not copied`);
    }
    t.not(isIgnored(`${image}/main.ts`), true);
  });
}

t.test('tests, tools and the work of a day stay out of images', async t => {
  for (const path of [
    '.git/config',
    'node_modules/fastify/package.json',
    'runs/quickstart-001/config.yaml',
    'test/app.test-data.ts',
    'env-server/main.test.ts',
    'bench/server.ts',
    'docs/reference/errors.md',
    'test/golden',
    'docker/compose.yaml',
    '.env',
  ]) {
    t.ok(isIgnored(path), path);
  }
});

t.test('a manifest is cut down to what is wanted', async t => {
  const manifest = {
    name: 'x',
    dependencies: { a: '1', b: '2' },
    devDependencies: { c: '3' },
    overrides: { a: { d: '4' }, b: { e: '5' } },
  };
  t.same(cutDown(manifest, ['b']), {
    name: 'x',
    dependencies: { b: '2' },
    overrides: { b: { e: '5' } },
  });
  t.same(cutDown({ ...manifest, overrides: {} }, ['b']), { name: 'x', dependencies: { b: '2' } });
  t.throws(() => cutDown(manifest, ['z']), /no dependency z/);
  const folder = t.testdir({ 'package.json': JSON.stringify(MANIFEST) });
  const run = (program: string) =>
    spawnSync(process.execPath, [`${ROOT}docker/packages.ts`, program, join(folder, 'package.json')], {
      encoding: 'utf8',
    });
  t.equal(run('trainer').status, 0);
  const { dependencies, devDependencies } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  t.same(Object.keys(dependencies), [...PACKAGES.trainer]);
  t.equal(devDependencies, undefined);
  t.match(run('both'), { status: 1, stderr: /one of env-server, trainer, not "both"/ });
});

t.test('the allocator is set alike by the image, by --replicas and in the page about deployment', async t => {
  const ofImage = Object.entries(variablesOf('env-server')).filter(([name]) => name.startsWith('MALLOC_'));
  t.same(Object.fromEntries(ofImage), ALLOCATOR);
  const text = Object.entries(ALLOCATOR).map(([name, value]) => `${name}=${value}`);
  t.match(readFileSync(`${ROOT}docs/how-to/deployment.md`, 'utf8'), `\`${text.join(' ')}\``);
});

t.test('the variables of the server image are settings of the server', async t => {
  const known = new Set(Object.keys(SETTINGS).map(variableOf));
  // What Node.js and the C library read is theirs.
  const names = Object.keys(variablesOf('env-server')).filter(name => !/^(NODE_|MALLOC_)/.test(name));
  for (const name of names) t.ok(known.has(name), name);
  t.same(said(lastStage('env-server'), 'VOLUME'), [variablesOf('env-server').RAGEN_DATA]);
  t.same(said(lastStage('env-server'), 'EXPOSE'), [variablesOf('env-server').RAGEN_PORT]);
});

/** Starts a program of an assembled image with the image's variables. */
function start(t: Test, folder: string, command: string[], env: { [name: string]: string }) {
  const { PATH = '' } = process.env;
  const [program, ...args] = command;
  const child = spawn(program, args, {
    cwd: folder,
    env: { PATH: `${process.execPath.replace(/\/node$/, '')}:${PATH}`, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  return child;
}

async function finished(child: ReturnType<typeof start>): Promise<{ code: number; text: string }> {
  let text = '';
  child.stdout.on('data', data => {
    text += data;
  });
  child.stderr.on('data', data => {
    text += data;
  });
  const [code] = await once(child, 'close');
  return { code, text };
}

const withoutTini = (image: 'env-server' | 'trainer'): string[] =>
  JSON.parse(said(lastStage(image), 'ENTRYPOINT')[0]).slice(2);

t.test('server and trainer run from what their images hold', { timeout: 900_000 }, async t => {
  const folders = { 'env-server': t.testdir({ data: {} }), trainer: '' };
  folders.trainer = join(folders['env-server'], 'trainer-app');
  const app = join(folders['env-server'], 'app');
  assemble('env-server', app);
  assemble('trainer', folders.trainer);
  const tokens = join(folders['env-server'], 'tokens.json');
  writeFileSync(tokens, JSON.stringify([{ name: 'me', sha256: hashToken('secret'), scopes: ['play'] }]));
  const port = String(await freePort());
  const env = {
    ...variablesOf('env-server'),
    RAGEN_HOST: '127.0.0.1',
    RAGEN_PORT: port,
    RAGEN_DATA: join(folders['env-server'], 'data'),
    RAGEN_TOKENS: tokens,
  };
  const compiled = (at: string) => ({ NODE_COMPILE_CACHE: join(at, 'compiled') });
  const modules = (at: string) => readdirSync(join(at, 'compiled'), { recursive: true }).length;
  for (const [image, at] of [
    ['env-server', app],
    ['trainer', folders.trainer],
  ] as const) {
    const { RAGEN_TOKENS: _, ...building } = env;
    const run = start(t, at, ['sh', '-c', said(lastStage(image), 'RUN')[1]], {
      ...building,
      ...compiled(at),
    });
    t.match(await finished(run), { code: 0 }, `${image}: its modules compile`);
    t.ok(modules(at) > 100, `${modules(at)} modules`);
  }
  Object.assign(env, compiled(app));
  const health = () => finished(start(t, app, [process.execPath, 'docker/healthcheck.ts'], env));
  const before = modules(app);
  t.match(await health(), { code: 1, text: /readyz/ }, 'nobody is there yet');
  t.equal(modules(app), before, 'the health check compiles nothing');

  const open = start(t, app, withoutTini('env-server'), {
    ...env,
    RAGEN_HOST: variablesOf('env-server').RAGEN_HOST,
    RAGEN_TOKENS: '',
  });
  t.match(await finished(open), { code: 1, text: /refusing to listen on 0\.0\.0\.0 without tokens/ });

  const server = start(t, app, withoutTini('env-server'), env);
  for await (const line of createInterface({ input: server.stdout })) {
    if (line.includes('listening on')) break;
  }
  t.equal(server.exitCode, null, 'the server runs');
  t.match(await health(), { code: 0, text: /: 200/ });

  const evaluate = ['evaluate', 'configs/quickstart.yaml', '--policy', 'random', '--quiet', '--json'];
  const trainer = start(
    t,
    folders.trainer,
    [
      'sh',
      ...withoutTini('trainer'),
      ...evaluate,
      `servers=[{url: "http://127.0.0.1:${port}"}]`,
      'validation.episodes=4',
      'rollout.server_patience_s=5',
    ],
    { ...variablesOf('trainer'), ...compiled(folders.trainer), RAGEN_TOKEN: 'secret' },
  );
  const { code, text } = await finished(trainer);
  t.match({ code, text }, { code: 0, text: /success/ });

  server.kill('SIGTERM');
  t.equal((await once(server, 'exit'))[0], 0);
});

t.test('a named run starts once and resumes afterwards, with the settings that may change', async t => {
  const folder = t.testdir({ bin: { node: '#!/bin/sh\necho "$@"\n' }, app: { runs: {} } });
  spawnSync('chmod', ['+x', join(folder, 'bin/node')]);
  const run = (name: string | undefined, ...args: string[]) =>
    spawnSync('sh', [`${ROOT}docker/trainer.sh`, ...args], {
      cwd: join(folder, 'app'),
      env: { PATH: `${join(folder, 'bin')}:${process.env.PATH}`, ...(name && { RAGEN_RUN: name }) },
      encoding: 'utf8',
    }).stdout.trim();
  const settings = [
    'configs/quickstart.yaml',
    'servers=[{url: "http://a b"}]',
    'seed=1',
    'training.steps=9',
    '--quiet',
  ];
  t.equal(
    run(undefined, 'train', ...settings),
    `--import ./bin/needs-node.js trainer/main.ts train ${settings.join(' ')}`,
  );
  t.equal(
    run('one', 'evaluate', 'runs/one'),
    '--import ./bin/needs-node.js trainer/main.ts evaluate runs/one',
  );
  t.equal(
    run('one', 'train', ...settings),
    `--import ./bin/needs-node.js trainer/main.ts train ${settings.join(' ')} run.name=one`,
  );
  spawnSync('mkdir', ['-p', join(folder, 'app/runs/one')]);
  writeFileSync(join(folder, 'app/runs/one/config.yaml'), '');
  t.equal(
    run('one', 'train', ...settings),
    '--import ./bin/needs-node.js trainer/main.ts train --resume runs/one servers=[{url: "http://a b"}] training.steps=9 --quiet',
  );
  const changes = RESUMABLE.map(section => `${section}.key=1`);
  t.equal(
    run('one', 'train', 'configs/quickstart.yaml', '--log-level', 'debug', 'policy.layers=3', ...changes),
    `--import ./bin/needs-node.js trainer/main.ts train --resume runs/one --log-level debug ${changes.join(' ')}`,
  );
  t.equal(
    run('two', 'train', ...settings),
    `--import ./bin/needs-node.js trainer/main.ts train ${settings.join(' ')} run.name=two`,
  );
});

t.test('manifests take images of others by digest, and name the version', async t => {
  const folder = `${ROOT}docker/`;
  const images = (readdirSync(folder, { recursive: true }) as string[])
    .filter(name => name.endsWith('.yaml'))
    .flatMap(name => [...readFileSync(`${folder}${name}`, 'utf8').matchAll(/^[ -]*image: *(.*)$/gm)])
    .map(([, image]) => image)
    .filter(image => !IMAGES.some(own => image === `ragen-${own}`));
  t.ok(images.length > 0);
  for (const image of images) t.match(image, /^[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}$/);
});

t.test('workflows take actions by commit, and name the version', async t => {
  const folder = `${ROOT}.github/workflows/`;
  const uses = readdirSync(folder).flatMap(name => [
    ...readFileSync(`${folder}${name}`, 'utf8').matchAll(/uses: (.*)/g),
  ]);
  t.ok(uses.length > 0);
  for (const [, action] of uses) t.match(action, /^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
});

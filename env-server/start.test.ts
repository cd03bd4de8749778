import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { listening, runServer } from '../test/process.test-data.ts';

const { dependencies } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
/** Dependencies that a server has loaded when it is ready. Each takes memory and time of every start, so the list is exact. */
const LOADED = [
  '@fastify/accept-negotiator',
  '@fastify/cors',
  '@fastify/etag',
  '@fastify/helmet',
  '@fastify/websocket',
  '@msgpack/msgpack',
  'commander',
  'cookie',
  'fastify',
  'pino',
  'quickjs-emscripten-core',
  'ws',
];

/** Loaded before the server: says on request what was loaded after it, and which modules of Node. */
const WATCH = `
import { registerHooks } from 'node:module';
const loaded = [];
registerHooks({
  load(url, context, next) {
    loaded.push(url);
    return next(url, context);
  },
});
process.on('SIGUSR2', () => console.log('loaded ' + JSON.stringify([...loaded, ...process.moduleLoadList])));
const sum = n => { let all = 0; for (let i = 0; i < n; i++) all += i % 7; return all; };
const OPTIMIZED = 16;
setInterval(() => {
  for (let n = 0; n < 1000; n++) sum(1000);
  if (%GetOptimizationStatus(sum) & OPTIMIZED) console.log('optimized');
}, 20).unref();
`;

t.test('a server that is ready has loaded what it needs for that', async t => {
  const folder = t.testdir({ 'watch.mjs': WATCH });
  const watch = pathToFileURL(join(folder, 'watch.mjs')).href;
  const child = runServer(t, ['--port', '0'], {}, ([node, ...args]) => [
    node,
    '--allow-natives-syntax',
    '--import',
    watch,
    ...args,
  ]);
  const { origin } = await listening(child);
  t.equal((await fetch(`${origin}/readyz`)).status, 200);
  let text = '';
  child.stdout!.on('data', chunk => {
    text += chunk;
  });
  child.kill('SIGUSR2');
  while (!/^loaded .*\n/m.test(text)) await once(child.stdout!, 'data');
  // What runs often is, though not what ran at the start.
  while (!/^optimized$/m.test(text)) await once(child.stdout!, 'data');
  const loaded: string[] = JSON.parse(/^loaded (.*)$/m.exec(text)![1]);
  const packages = new Set(loaded.map(name => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(name)?.[1]));
  t.same(
    Object.keys(dependencies).filter(name => packages.has(name)),
    LOADED,
  );
  const files = loaded.flatMap(name => /\/(?:env-server|site\/server)\/(.*)\.ts$/.exec(name)?.[1] ?? []);
  t.ok(files.includes('app'));
  t.notOk(loaded.includes('NativeModule internal/deps/undici/undici'), 'nor the fetch of Node');
});

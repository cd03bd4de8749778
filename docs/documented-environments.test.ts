import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import t, { type Test } from 'tap';
import type { AnyEnvironment } from '../env-server/environments/core/environment.ts';
import { freePort } from '../test/free-port.test-data.ts';
import { lacksPython, PYTHON } from '../test/python.test-data.ts';
import { CANNOT_WALK, readPage, startProgram, startServer } from '../test/walkthrough.test-data.ts';
import { init } from '../trainer/commands/init/init.ts';
import { loadRunSettings } from '../trainer/config/load.ts';
import { serve } from '../trainer/rollout/server.test-data.ts';
import { type DocumentedEnvironment, documentedEnvironments } from './documented-environments.ts';

t.setTimeout(900_000);

const ROOT = join(import.meta.dirname, '..');
/** Services of the pages by port, and the port of the server. */
const SERVICES: { readonly [port: string]: readonly [program: string, file: string] } = {
  9001: ['python3', 'docs/examples/higher_lower.py'],
  9002: [process.execPath, 'docs/examples/nim.ts'],
};
const SERVER_PORT = '8080';
const TUTORIAL = 'docs/tutorial/learning-curve.md';
const TYPESCRIPT_PAGES = ['docs/how-to/add-an-environment.md', 'docs/how-to/use-as-a-package.md', TUTORIAL];

/** Replacements of the imports of a page's environment: the package's, and those of files that the page writes. */
const IMPORTS: readonly (readonly [from: string, to: string])[] = [
  ["'ragen/env-server'", `'${ROOT}/env-server/index.ts'`],
  ["'../../../shared/", `'${ROOT}/shared/`],
  ["'../core/", `'${ROOT}/env-server/environments/core/`],
];

/** The environment that a page writes in TypeScript. */
async function environmentOf(t: Test, page: string): Promise<AnyEnvironment> {
  const [, source] = /```ts\n([\s\S]*?)^```$/m.exec(readPage(page))!;
  const file = join(t.testdirName, `${basename(page, '.md')}.ts`);
  writeFileSync(
    file,
    IMPORTS.reduce((text, [from, to]) => text.replaceAll(from, to), source),
  );
  const [environment] = Object.values((await import(file)) as Record<string, AnyEnvironment>);
  return environment;
}

/** A server and the services of the pages as processes, each under a port that replaces the page's. */
async function served(t: Test): Promise<{ readonly url: string; readonly local: (text: string) => string }> {
  const ports = new Map<string, string>();
  for (const port of [SERVER_PORT, ...Object.keys(SERVICES)]) ports.set(port, String(await freePort()));
  const server = ports.get(SERVER_PORT)!;
  await startServer(t, ['--port', server, '--remote-networks', '127.0.0.1/32']);
  for (const [port, [program, file]] of Object.entries(SERVICES)) {
    await startProgram(t, program, [file, '--port', ports.get(port)!]);
  }
  const local = (text: string) =>
    [...ports].reduce((changed, [from, to]) => changed.replaceAll(`:${from}`, `:${to}`), text);
  return { url: `http://127.0.0.1:${server}`, local };
}

/** Writes a config, which plays part of an iteration with it and learns from that. */
async function initialize(t: Test, url: string, envId: string, page: string): Promise<void> {
  const out = join(t.testdirName, `${basename(page, '.md')}-${envId.replaceAll('/', '-')}.yaml`);
  t.equal(await init(envId, [], { servers: url, out }), 0, `${envId} of ${page}`);
  const { tags } = loadRunSettings(out);
  t.ok(Object.values(tags)[0].random_success !== null, `${envId} has a random player`);
}

t.test(
  'every environment of the pages trains for an iteration with the config that init writes',
  { skip: CANNOT_WALK },
  async t => {
    t.testdir();
    const { url, local } = await served(t);
    const documented = documentedEnvironments();
    const kinds = documented.map(({ definition }) => definition.protocol ?? definition.kind);
    t.same(new Set(kinds), new Set(['tabular', 'script', 'composed', 'webhook', 'ragen', 'openenv', 'ors']));
    t.capture(console, 'log');
    for (const environment of documented) {
      await register(t, url, local(JSON.stringify(bodyOf(environment))));
      await initialize(t, url, environment.env_id, environment.page);
    }
  },
);

t.test('the environments that pages write in TypeScript train for an iteration', async t => {
  t.testdir();
  t.capture(console, 'log');
  for (const page of TYPESCRIPT_PAGES) {
    const environment = await environmentOf(t, page);
    const [server] = (await serve(t, {}, [environment])).servers;
    await initialize(t, server.name, environment.spec.id, page);
  }
});

t.test(
  'the environment that the tutorial writes in Python trains for an iteration',
  { skip: lacksPython('ragen_env', 'starlette', 'uvicorn') || CANNOT_WALK },
  async t => {
    const [, source] = /```python\n([\s\S]*?)^```$/m.exec(readPage(TUTORIAL))!;
    const folder = t.testdir({ 'guess.py': source });
    const { url } = await served(t);
    const args = [
      '-m',
      'ragen_env.cli',
      'serve',
      'guess:GuessTen',
      '--register',
      url,
      '--port',
      String(await freePort()),
    ];
    const child = spawn(PYTHON, args, { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] });
    t.teardown(() => child.kill('SIGKILL'));
    for await (const line of createInterface({ input: child.stdout }))
      if (line.startsWith('registered as')) break;
    t.capture(console, 'log');
    await initialize(t, url, 'me/GuessTen-v0', TUTORIAL);
  },
);

const bodyOf = ({ env_id, definition }: DocumentedEnvironment) => ({ env_id, definition });

async function register(t: Test, url: string, body: string): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  const reply = await fetch(`${url}/v1/envs`, { method: 'POST', headers, body });
  t.equal(reply.status, 201, await reply.text());
}
